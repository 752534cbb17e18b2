"""The same mode at every step."""

from __future__ import annotations

from sglang_specv2.policy.base import Decision, Mode, require_live


class AlwaysPolicy:
    """Speculates at every step."""

    name = "always"

    def decide(self, batch_size: int, context_tokens: int = 0) -> Decision:
        """See :class:`~sglang_specv2.policy.base.Policy`."""
        require_live(batch_size)
        return Decision(Mode.SPECULATIVE, switched=False, reason="policy 'always' speculates")


class NeverPolicy:
    """Speculates at no step."""

    name = "never"

    def decide(self, batch_size: int, context_tokens: int = 0) -> Decision:
        """See :class:`~sglang_specv2.policy.base.Policy`."""
        require_live(batch_size)
        return Decision(Mode.PLAIN, switched=False, reason="policy 'never' does not speculate")
