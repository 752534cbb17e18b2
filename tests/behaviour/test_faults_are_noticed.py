"""The tests of the other themes fail where the server breaks what they promise.

Each is called as it is, with a fault of the probe planted in the server.
"""

import pytest
import test_grammar
import test_logprobs
import test_metrics
import test_radix_cache_and_pages
import test_sampling

CAUGHT = {
    "counted_as_a_verify": lambda server, stock, texts: (
        test_metrics.test_a_requests_accept_length_is_over_its_verifies(server, texts, "3s 3p")
    ),
    "forget_the_pending_write": lambda server, stock, texts: (
        test_radix_cache_and_pages.test_turns_decoded_in_one_mode_and_then_in_another(server, texts)
    ),
    "grammar_not_awaited": lambda server, stock, texts: (
        test_grammar.test_a_schema_beside_free_requests(server, stock, texts, "1p")
    ),
    "logprobs_of_the_row_before": lambda server, stock, texts: test_logprobs.test_of_outputs(
        server, stock, texts, "1p"
    ),
    "proposal_of_the_wrong_rows": lambda server, stock, texts: (
        test_radix_cache_and_pages.test_turns_decoded_in_one_mode_and_then_in_another(server, texts)
    ),
    "sampled_greedily": lambda server, stock, texts: (
        test_sampling.test_the_first_tokens_have_the_plain_servers_distribution(
            server, stock, texts, "1p"
        )
    ),
    "wrong_slot": lambda server, stock, texts: (
        test_radix_cache_and_pages.test_turns_decoded_in_one_mode_and_then_in_another(server, texts)
    ),
}


@pytest.mark.parametrize("fault", CAUGHT)
def test_by_the_test_of_its_theme(server, stock_server, texts, fault):
    server.plant(fault)
    # A ValueError is JSON that is none.
    with pytest.raises((AssertionError, ValueError)):
        CAUGHT[fault](server, stock_server, texts)
