"""tests/behaviour/test_retraction.py on a GPU."""

# ruff: noqa: F403

import pytest
import torch
from test_retraction import *

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: retraction beside two streams"
)
