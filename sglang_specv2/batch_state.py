"""What a step changes in SGLang's batch is put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any


@contextmanager
def preserved(batch: Any) -> Iterator[None]:
    """Put every field of a ScheduleBatch back afterwards, also when the body raises."""
    saved = {field.name: getattr(batch, field.name) for field in fields(batch)}
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(batch, name, value)
