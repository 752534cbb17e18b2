"""What chance did to a round whose accept length is simulated.

SGLang draws one accept length per step, for the whole batch. So the mean over the few hundred steps
of a round is off by a few percent from what was asked, and differently in each arm, while what the
steps cost has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rate_as_asked(line: Mapping[str, Any], accept_length: float) -> float:
    """Output tokens a second, had the verifies of a round drawn the accept length that was asked.

    Args:
        line: of a round. Of an arm that is not ours only SGLang's accept length is known: output
            tokens over verifies. It leaves out drafts past a request's end, which flatters such
            an arm by a quarter of a percent at 256 tokens. SGLang's adaptive worker counts each
            plain step as a verify, so of its rounds this cannot be said.
        accept_length: tokens per verify that were asked for.
    """
    rate = float(line["output_tokens_s"])
    if line.get("accept_length") is None:
        return rate  # No verify.
    others = line["requests"]  # The first token of each is the prefill's.
    if "verifies" in line:
        verifies = line["verifies"]
        others += line["plain_tokens"]
        drawn = others + verifies + line["accepted_drafts"]
    else:
        verifies, drawn = line["output_tokens"] / line["accept_length"], line["output_tokens"]
    return rate * (others + verifies * accept_length) / drawn
