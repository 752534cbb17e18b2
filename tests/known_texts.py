"""Prompts for the bundled pair whose greedy continuation is known, with what the draft does in it.

The prompts were picked because the bundled target does not fall into a loop behind them: in a loop
every draft is right, whatever the draft's KV cache holds. With another pair, pick others.
"""

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent / "reference"))
from draft_by_position import DraftOfText, draft_of
from eagle3_reference import Pair, run_target

ANSWER_TOKENS = 440
DRAFTS = 2
LEAST_MARGIN = 5e-4
"""Between the two likeliest tokens; closer ones could change places by rounding."""

SHORT = (
    "import warning\nfrom mail import ",
    "import matrix\nfrom mail ",
    '"""MailWarning -- group ',
    "import path\nfrom file im",
    "import list\nfrom archive import ",
    "import color\nfrom random import code\n\nWI",
    "def group_hash(window, *, socket=0):\n   ",
    "import menu\nfrom stream import f",
    "    for task in stream.file():\n        if list >",
    "t import list\n\nSOCKET = ",
)
LONG = (
    '"""Count the words of a text.\n\nReads the file named on the command line, or standard input, '
    "and prints each word\nwith the number of times it occurs, the most frequent first.\n"
    '"""\n\nimport sys\nfrom collections import Counter\n\n\ndef count(lines):\n    ',
    'class Cache:\n    """Keeps the last values of a function by its arguments.\n\n'
    "    The oldest entry goes when there is no room; time is that of the clock given.\n"
    '    """\n\n    def __init__(self, size, clock):\n        self.size = size\n'
    "        self.clock = clock\n        self.entries = {}\n\n"
    "    def get(self, key, default=None):\n        ",
)


@dataclass(frozen=True)
class KnownText:
    """Token ids of a prompt and of its greedy continuation, and the draft along both."""

    prompt: list[int]
    answer: list[int]
    draft: DraftOfText

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.answer


@functools.cache
def known_texts(target: Path, draft: Path) -> tuple[KnownText, ...]:
    """The short prompts first, then the long ones.

    The continuation is Hugging Face transformers', the draft that of the cache-free reference.
    """
    from transformers import AutoModelForCausalLM

    prompts = [list(text.encode()) for text in (*SHORT, *LONG)]
    pair = Pair.load(target, draft)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more cost more than they gain at this size
    texts = []
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    for prompt, answer in zip(prompts, _greedy(model, prompts), strict=True):
        _require_clear(pair, prompt, answer)
        texts.append(KnownText(prompt, answer, draft_of(pair, prompt + answer, DRAFTS)))
    torch.set_num_threads(threads)
    return tuple(texts)


def _greedy(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    generated = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=ANSWER_TOKENS,
        min_new_tokens=ANSWER_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )
    return generated[:, longest:].tolist()


def _require_clear(pair: Pair, prompt: list[int], answer: list[int]) -> None:
    """The reference agrees with transformers, and no token of the answer is a near tie."""
    logits, _ = run_target(pair, prompt + answer)
    best = logits[len(prompt) - 1 : -1].topk(2)
    if best.indices[:, 0].tolist() != answer:
        raise AssertionError("the reference and transformers differ on a greedy text")
    margin = (best.values[:, 0] - best.values[:, 1]).min().item()
    if margin < LEAST_MARGIN:
        raise AssertionError(
            f"the text behind {bytes(prompt)!r} hangs on a margin of {margin:.1e}: "
            f"expected at least {LEAST_MARGIN:.0e}; pick another prompt"
        )
