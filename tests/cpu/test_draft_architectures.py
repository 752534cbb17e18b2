"""Every draft that gets the KV-only sync: its K and V must be the draft's own."""

import json
import os

import pytest
from draft_variants import VARIANTS, PairWriter
from live_server import LiveServer
from probed_server import PROBE

PROMPTS = [[2, 3, 4, 5, 6], [9, 8, 7], [*range(3, 40)], [11]]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
def test_kv_written_alone_are_the_drafts_own(tmp_path, variant):
    algorithm, target, draft = variant(PairWriter(tmp_path))
    lines = tmp_path / "differences"
    server = LiveServer(
        target,
        tmp_path / "log",
        draft,
        arguments=["--speculative-algorithm", algorithm, "--speculative-draft-sync", "kv"],
        env={
            "PYTHONPATH": os.pathsep.join([str(PROBE), os.environ.get("PYTHONPATH", "")]),
            "SPECV2_PROBE_PROJECTION": str(lines),
            "SGLANG_SPECV2_TEST_SCHEDULE": "every:2",
        },
    )
    try:
        speculated = server.generate(PROMPTS, max_new_tokens=24)
        server.wait_until_idle()
    finally:
        server.stop()

    assert all(len(answer.token_ids) == 24 for answer in speculated)
    differences = [
        json.loads(line) for line in (tmp_path / "differences.0").read_text().splitlines()
    ]
    assert sum(line["rows"] for line in differences) > 100
    assert {line["rows"] for line in differences} >= {1, 3}, "one-token and full extends"
    for line in differences:
        assert line["k"] < 1e-5
        assert line["v"] < 1e-5
