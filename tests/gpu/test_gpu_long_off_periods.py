"""Acceptance after thousands of tokens without speculation, with graphs and two streams."""

import pytest
import torch
from long_off_period import LONG_FLAGS, accepts_behind_plain_tokens, first_steps

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: thousands of steps on graphs"
)


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed(*LONG_FLAGS)


@pytest.mark.parametrize("plain_steps", [256, 1024, 4000])
def test_acceptance_is_that_of_the_same_text_never_off(server, plain_steps):
    """But for ties that rounding decides: steps of a graph and of a prefill round differently."""
    after, never_off = accepts_behind_plain_tokens(server, plain_steps)

    print(f"{plain_steps}: {first_steps(after)} of {first_steps(never_off)}")
    assert first_steps(after) >= 0.97 * first_steps(never_off)
    assert sum(a == b for a, b in zip(after, never_off, strict=True)) >= len(after) - 1
    server.wait_until_idle()


def test_without_sync_it_is_not(start_probed):
    server = start_probed(*LONG_FLAGS, "--speculative-draft-sync", "off")
    after, never_off = accepts_behind_plain_tokens(server, 1024)

    print(f"without sync: {first_steps(after)} of {first_steps(never_off)}")
    assert first_steps(after) < 0.9 * first_steps(never_off)
