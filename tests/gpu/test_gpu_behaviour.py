"""What tests/behaviour asks of the CPU engine, asked of a GPU: graphs, streams, real kernels.

Only themes that share their servers are here; each test is that of its theme.
"""

# ruff: noqa: F403

import pytest
import torch
from test_aborting import *
from test_context_limit import *
from test_finishing import *
from test_grammar import *
from test_logprobs import *
from test_metrics import (  # noqa: F401  the others compare counts with a trace that comes late
    test_a_draft_that_computes_nan_changes_no_token_and_is_counted,
    test_scrapes_between_switches,
)
from test_penalties import *
from test_radix_cache_and_pages import *
from test_sampling import *
from test_weights_and_memory import *

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: behaviour with graphs and streams"
)
