"""A running server, asked over HTTP by the commands that look at one or change it."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import urllib.error
import urllib.request
from typing import Any

from sglang_specv2.errors import SpecV2Error
from sglang_specv2.introspection import STATE_KEY

API_KEY, ADMIN_API_KEY = "SGLANG_SPECV2_API_KEY", "SGLANG_SPECV2_ADMIN_API_KEY"
"""Variables that hold the keys of the server, so that they need not stand on the command line."""


class ServerAnswerError(SpecV2Error):
    """The server cannot be reached, or refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds ``--url`` and ``--api-key``."""
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="(default: %(default)s)")
    parser.add_argument(
        "--api-key",
        default=os.environ.get(API_KEY),
        help=f"the server's --api-key, or its --admin-api-key where that is its only one (default: "
        f"${API_KEY})",
    )


def states(url: str, api_key: str | None) -> list[dict[str, Any]]:
    """The worker's state on each scheduler of the server.

    Raises:
        ServerAnswerError: there is no server, it refused, or its worker is not ours.
    """
    answer = request(url, "/server_info", api_key)
    told = answer.get("internal_states") if isinstance(answer, dict) else None
    schedulers = told if isinstance(told, list) else []
    found = [state[STATE_KEY] for state in schedulers if isinstance(_ours(state), dict)]
    if not found or len(found) < len(schedulers):
        raise ServerAnswerError(
            f"{url}: expected a server whose worker is sglang-specv2's, got another; was it "
            "started with --speculative-algorithm EAGLE or EAGLE3 and this plugin? "
            "`sglang-specv2 doctor` says more"
        )
    return found


def _ours(state: Any) -> Any:
    return state.get(STATE_KEY) if isinstance(state, dict) else None


def request(url: str, path: str, api_key: str | None, body: Any = None) -> Any:
    """The parsed JSON of an answer; GET, or POST where there is a body.

    Raises:
        ServerAnswerError: there is no server, or it answered with an error; tells its words.
    """
    if not url.startswith(("http://", "https://")):
        raise ServerAnswerError(f"--url: expected http://… or https://…, got {url!r}")
    headers = {"Content-Type": "application/json"}
    if api_key:
        if not api_key.isascii():
            raise ServerAnswerError(
                "--api-key: expected ASCII, as HTTP headers hold, got other signs"
            )
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url.rstrip("/") + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise ServerAnswerError(_words(url, error)) from error
    except http.client.InvalidURL as error:
        raise ServerAnswerError(f"--url {url}: expected http://HOST:PORT, got {error}") from error
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ServerAnswerError(
            f"{url}: expected a server, got {reason}; give the right --url"
        ) from error
    except ValueError as error:
        raise ServerAnswerError(f"{url}{path}: expected JSON, got something else") from error


def _words(url: str, error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return (
            f"{url}: the server wants its API key (status {error.code}); give --api-key, and "
            "--admin-api-key to change what a server with both is to do"
        )
    text = error.read().decode(errors="replace")
    try:
        said = json.loads(text)
    except ValueError:
        if "<html" in text.lower():
            return (
                f"{url}: expected an SGLang server, got a web page (status {error.code}); give the "
                "right --url"
            )
        said = text
    if isinstance(said, dict):
        said = said.get("message") or said.get("detail") or said
    return f"{url}: the server refused (status {error.code}): {said}"
