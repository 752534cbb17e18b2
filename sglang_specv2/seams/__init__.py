"""The ledger: every name of SGLang that this package touches, and what it has to look like.

:mod:`sglang_specv2.compat` compares it with the installed SGLang. A module here holds what one part
of the package touches; the CPU engine's names are in :mod:`sglang_specv2.cpu.seams`.
"""

from sglang_specv2.seams import benchmark, draft, launch, policy, statistics, step
from sglang_specv2.seams.seam import RELIED_ON, Seam, members

__all__ = ["LEDGER", "RELIED_ON", "Seam", "members"]

LEDGER: tuple[Seam, ...] = (
    *launch.SEAMS,
    *step.SEAMS,
    *draft.SEAMS,
    *policy.SEAMS,
    *statistics.SEAMS,
    *benchmark.SEAMS,
)
"""Every name, each once."""
