"""Memory that is really given back (--enable-memory-saver) while off, and taken again."""

import pytest
import torch
from worker_scenarios import Request, of_many_lengths, serve, serve_watched

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: memory that can be released"
)

FROM_THE_REFERENCE = 1e-4
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed(
        *("--speculative-dynamic", "never"),
        *("--enable-memory-saver", "--enable-draft-weights-cpu-backup"),
    )


def used_bytes():
    free, total = torch.cuda.mem_get_info()
    return total - free


@pytest.mark.parametrize("tags", [["kv_cache"], ["kv_cache", "cuda_graph"], None])
def test_released_and_resumed_while_off(server, texts, trained_pair, tags):
    """SGLang does not keep what was in the target's weights: they are loaded again."""
    serve(server, [Request(text, 20) for text in texts[:4]], "1p")
    server.wait_until_idle()
    body = {} if tags is None else {"tags": tags}
    before = used_bytes()
    server.post("/release_memory_occupation", body)
    released = before - used_bytes()
    server.post("/resume_memory_occupation", body)
    if tags is None:
        answer = server.post("/update_weights_from_disk", {"model_path": str(trained_pair[0])})
        assert answer["success"]

    assert released > 10 * MIB
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts[:8], 20, 60), "4s 5p")
    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
    server.wait_until_idle()
