"""Acceptance after up to 4,000 tokens without speculation, on the bundled trained pair."""

import pytest
from long_off_period import LONG_FLAGS, accepts_behind_plain_tokens, first_steps

# A look at each of 40,000 slots in every step takes longer than the step.
UNCHECKED = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "0"}


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed(*LONG_FLAGS, env=UNCHECKED, timeout_s=300)


@pytest.mark.parametrize(("plain_steps", "requests"), [(256, 8), (1024, 8), (4000, 2)])
def test_acceptance_is_that_of_the_same_text_never_off(server, plain_steps, requests):
    """The CPU's attention takes long over 4,000 positions; a GPU serves more such requests."""
    after, never_off = accepts_behind_plain_tokens(server, plain_steps, requests)

    print(f"{plain_steps}: {first_steps(after)} of {first_steps(never_off)}")
    assert after == never_off
    assert {accept for request in after for accept in request} == {1, 2, 3}


def test_without_sync_it_is_not(start_probed):
    server = start_probed(*LONG_FLAGS, "--speculative-draft-sync", "off", env=UNCHECKED)
    after, never_off = accepts_behind_plain_tokens(server, 1024)

    print(f"without sync: {first_steps(after)} of {first_steps(never_off)}")
    assert first_steps(after) < 0.9 * first_steps(never_off)
