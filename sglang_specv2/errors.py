"""Every error this package raises on purpose.

::

    SpecV2Error
    ├── ConfigError          a value that cannot be right (also a ValueError)
    ├── UnsupportedError     a feature of SGLang that cannot be combined with what was asked
    ├── CompatibilityError   this SGLang differs from the one we know
    ├── CaptureError         the second graph family could not be captured
    ├── BatchShapeError      a batch reached a decode step it was not prepared for
    ├── ArmError             one server of a benchmark failed (benchmark/errors.py)
    └── ResultError          a benchmark's result folder cannot be used (benchmark/errors.py)

Each message says what was expected, what was found and what to do about it.
"""


class SpecV2Error(Exception):
    """Root of the tree."""


class ConfigError(SpecV2Error, ValueError):
    """A setting has an impossible value, or contradicts another one."""


class UnsupportedError(SpecV2Error):
    """SGLang was asked for a feature that dynamic speculation does not work with."""


class CompatibilityError(SpecV2Error):
    """The installed SGLang differs from the supported one in something we rely on."""

    def __init__(self, differences: list[str] | str) -> None:
        self.differences = [differences] if isinstance(differences, str) else list(differences)
        super().__init__("\n".join(self.differences))


class BatchShapeError(SpecV2Error):
    """A batch's tensors have another number of rows than the step needs."""


class CaptureError(SpecV2Error):
    """The plain decode graphs could not be captured beside the speculative ones."""
