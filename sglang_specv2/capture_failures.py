"""What becomes of a graph capture that fails: the server refuses to start, or goes on without."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from sglang_specv2.errors import CaptureError

logger = logging.getLogger(__name__)

Captured = TypeVar("Captured")


class CaptureFailures:
    """Runs captures, and does with their failures what ``--speculative-capture-failure`` says.

    Args:
        instead: ``refuse`` or ``eager``.

    Attributes:
        reasons: what could not be captured and why, in words; empty when all was.
    """

    def __init__(self, instead: str = "refuse") -> None:
        self._instead = instead
        self.reasons: list[str] = []

    def attempt(
        self,
        what: str,
        capture: Callable[[], Captured],
        *,
        required: bool = False,
        without: str = "those steps run eagerly, and slower",
    ) -> Captured | None:
        """What ``capture`` returns, or None where it failed and the server goes on without.

        Args:
            what: names what is captured, in the plural.
            capture: leaves nothing of its own behind when it raises.
            required: there is no step without it, so that a failure always refuses.
            without: what the server is like then, for the log.

        Raises:
            CaptureError: it failed, and the server is not to start.
        """
        try:
            return capture()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if required or self._instead == "refuse":
                raise CaptureError(
                    f"capturing {what} failed: expected room for graphs beside the speculative "
                    f"ones, on a backend that can capture, got {reason}. Lower "
                    "--mem-fraction-static or --cuda-graph-max-bs-decode, or serve with "
                    + ("" if required else "--speculative-capture-failure eager or ")
                    + "--speculative-dynamic always."
                ) from error
        # What was half captured hangs on the exception, which is gone by now.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.reasons.append(f"{what}: {reason}")
        logger.warning("Without %s, %s. Got %s", what, without, reason)
        return None
