"""Prompt and output end exactly where the context ends, in every setting."""

import pytest
from live_server import ServerError
from worker_scenarios import CONTEXT, Request, serve

DRAFT_TOKENS = 3
"""SGLang keeps this many positions free below the context's limit when it speculates."""


def longest(text, given):
    return Request(text, CONTEXT - DRAFT_TOKENS - len(text.prompt) - given, given)


def test_they_end_there(server, texts, runs):
    requests = [longest(texts[i], given) for i in (-2, -1) for given in (240, 241, 242)]
    outcome = serve(server, requests, runs)

    outcome.require_right()
    for rid, answer in outcome.answers.items():
        assert answer.meta["finish_reason"]["type"] == "length"
        assert len(outcome.requests[rid].prompt) + len(answer.token_ids) == CONTEXT - DRAFT_TOKENS


def test_one_token_more_is_refused(server, texts, runs):
    request = longest(texts[-1], 240)
    with pytest.raises(ServerError, match="maximum context length"):
        serve(server, [Request(request.text, request.tokens + 1, request.given)], runs)
