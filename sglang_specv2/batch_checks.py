"""What a plain decode step requires of the batch it is given, said in words when it is not so."""

from __future__ import annotations

from sglang_specv2.errors import BatchShapeError


def describe_rows(name: str, rows: int, requests: int, num_draft_tokens: int) -> str:
    """Explain a row count that does not fit a plain step.

    A batch that was prepared for speculation holds ``requests * num_draft_tokens`` rows, and the
    error it causes deep inside an attention kernel names two numbers that say nothing by
    themselves. This names what they are.
    """
    if requests > 0 and rows == requests * num_draft_tokens and num_draft_tokens > 1:
        return (
            f"{name} has {rows} rows = {requests} requests × {num_draft_tokens} draft tokens; "
            f"a plain step needs {requests}"
        )
    return f"{name} has {rows} rows for {requests} requests; a plain step needs {requests}"


def require_plain_rows(rows_by_name: dict[str, int], requests: int, num_draft_tokens: int) -> None:
    """Raise unless every input of a plain step has one row per request.

    Args:
        rows_by_name: leading dimension of each input, by the name it has in the batch.
        requests: live requests in the batch.
        num_draft_tokens: rows per request of a speculative verify, to name an inflated batch.

    Raises:
        BatchShapeError: an input has another number of rows.
    """
    wrong = [
        describe_rows(name, rows, requests, num_draft_tokens)
        for name, rows in rows_by_name.items()
        if rows != requests
    ]
    if wrong:
        raise BatchShapeError(
            "; ".join(wrong)
            + ". A batch prepared for speculation reached the plain decode path; this is a fault "
            "in sglang-specv2 or in a plugin that changes the batch: please report it with "
            "`sglang-specv2 doctor`, and serve with --speculative-dynamic always until then."
        )
