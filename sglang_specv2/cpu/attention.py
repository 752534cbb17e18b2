"""Causal grouped-query attention over a paged KV pool, for ragged batches, in plain torch."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class Segments:
    """What the attention of one forward reads, the same in all layers.

    Of each request the last ``query_lens[i]`` of its ``kv_lens[i]`` positions attend, each to the
    positions up to its own. Requests are padded to the longest; padding repeats rows of the request
    itself, so that nothing foreign is ever read, not even a NaN behind a mask.

    Attributes:
        query_rows: int64 ``[bs, max_query]``, rows of the flat query.
        valid: bool ``[bs, max_query]``, which of them are not padding.
        kv_slots: int64 ``[bs, max_kv]``, KV slots of the positions.
        mask: bool ``[bs, 1, max_query, max_kv]``, true where a query sees a position.
    """

    query_rows: Tensor
    valid: Tensor
    kv_slots: Tensor
    mask: Tensor

    @classmethod
    def build(
        cls, query_lens: Tensor, kv_lens: Tensor, req_pool_indices: Tensor, req_to_token: Tensor
    ) -> "Segments":
        """``query_lens``, ``kv_lens``, ``req_pool_indices``: int64 ``[bs]``, lengths at least 1.

        ``req_to_token``: integer ``[request slots, context]``, the KV slot of each position.
        """
        query = torch.arange(int(query_lens.max()))
        position = torch.arange(int(kv_lens.max()))
        within = torch.minimum(query, query_lens[:, None] - 1)
        first_row = torch.cumsum(query_lens, 0) - query_lens
        slots = req_to_token[req_pool_indices, : len(position)].long()
        own_position = (kv_lens - query_lens)[:, None] + within
        return cls(
            query_rows=first_row[:, None] + within,
            valid=query < query_lens[:, None],
            kv_slots=slots.where(position < kv_lens[:, None], slots[:, :1]),
            mask=(position <= own_position[..., None])[:, None],
        )


def attend(query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scale: float) -> Tensor:
    """Attention of ``query`` ``[tokens, heads, dim]`` over pools ``[kv slots, kv heads, dim]``.

    ``heads`` is a multiple of ``kv heads``. Returns ``[tokens, heads, value dim]``.
    """
    q = query[segments.query_rows].transpose(1, 2)
    k = keys[segments.kv_slots].transpose(1, 2).to(q.dtype)
    v = values[segments.kv_slots].transpose(1, 2).to(q.dtype)
    grouped = q.shape[1] != k.shape[1]
    out = scaled_dot_product_attention(
        q, k, v, attn_mask=segments.mask, scale=scale, enable_gqa=grouped
    )
    return out.transpose(1, 2)[segments.valid]
