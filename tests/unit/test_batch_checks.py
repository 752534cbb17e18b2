import pytest

from sglang_specv2.batch_checks import describe_rows, require_plain_rows
from sglang_specv2.errors import BatchShapeError


def test_one_row_for_each_request_passes():
    require_plain_rows({"input_ids": 10, "seq_lens": 10}, 10, 16)
    require_plain_rows({}, 10, 16)


def test_an_inflated_batch_is_named_for_what_it_is():
    with pytest.raises(BatchShapeError) as error:
        require_plain_rows({"input_ids": 160, "seq_lens": 10}, 10, 16)

    assert "input_ids has 160 rows = 10 requests × 16 draft tokens; a plain step needs 10" in str(
        error.value
    )
    assert "seq_lens" not in str(error.value)
    assert "--speculative-dynamic always" in str(error.value), "a way out"


@pytest.mark.parametrize(
    ("rows", "requests", "draft_tokens"), [(7, 3, 2), (3, 3, 1), (0, 4, 3), (6, 0, 6)]
)
def test_other_row_counts_are_not_explained_away(rows, requests, draft_tokens):
    words = describe_rows("bonus_tokens", rows, requests, draft_tokens)

    assert "×" not in words
    assert f"bonus_tokens has {rows} rows" in words
    assert f"a plain step needs {requests}" in words


def test_every_wrong_input_is_listed():
    with pytest.raises(BatchShapeError, match=r"a has 4 rows.*b has 2 rows"):
        require_plain_rows({"a": 4, "b": 2, "c": 3}, 3, 8)
