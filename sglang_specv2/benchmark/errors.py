"""What can go wrong with one arm while the others go on."""

from sglang_specv2.errors import SpecV2Error


class ArmError(SpecV2Error):
    """An arm's server did not start, ended, hangs, or is not what the arm's name says.

    Attributes:
        log_tail: the end of its log.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class ResultError(SpecV2Error):
    """A result folder is none, is broken, or belongs to another comparison."""
