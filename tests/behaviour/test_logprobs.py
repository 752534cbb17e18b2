"""One logprob for each token, equal to those of a server without speculation."""

import pytest


def test_of_outputs(server, stock_server, texts, runs):
    server.schedule(runs)
    asked = {"max_new_tokens": 40, "return_logprob": True, "top_logprobs_num": 2}
    prompts = [text.prompt for text in texts[:6]]
    for got, expected in zip(
        server.generate(prompts, **asked), stock_server.generate(prompts, **asked), strict=True
    ):
        mine, theirs = got.meta["output_token_logprobs"], expected.meta["output_token_logprobs"]
        assert [token for _, token, _ in mine] == got.token_ids == expected.token_ids
        assert [p for p, _, _ in mine] == pytest.approx([p for p, _, _ in theirs], abs=1e-3)
        top, their_top = got.meta["output_top_logprobs"], expected.meta["output_top_logprobs"]
        assert len(top) == 40
        for pair, their_pair in zip(top, their_top, strict=True):
            assert [p for p, _, _ in pair] == pytest.approx([p for p, _, _ in their_pair], abs=1e-3)


def test_of_prompts_beside_requests_that_want_none(server, stock_server, texts, runs):
    server.schedule(runs)
    asked = {"max_new_tokens": 24, "return_logprob": True, "logprob_start_len": 0}
    beside = [server.submit(text.prompt, max_new_tokens=40) for text in texts[3:6]]
    for text in texts[:3]:
        got = server.submit(text.prompt, **asked).result()
        expected = stock_server.submit(text.prompt, **asked).result()
        assert got.token_ids == expected.token_ids == text.answer[:24]
        for field, tokens in (("input", text.prompt), ("output", got.token_ids)):
            mine, theirs = (one.meta[f"{field}_token_logprobs"] for one in (got, expected))
            assert [token for _, token, _ in mine] == tokens
            assert [p for p, _, _ in mine[1:]] == pytest.approx(
                [p for p, _, _ in theirs[1:]], abs=1e-3
            )
    assert [future.result().token_ids for future in beside] == [
        text.answer[:40] for text in texts[3:6]
    ]
