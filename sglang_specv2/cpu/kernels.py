"""Torch versions of the ``sgl_kernel`` CPU operators on SGLang's EAGLE path.

Signatures are those of SGLang's call sites; results go into tensors that the caller allocated.
``req_to_token``, int32 ``[request slots, context]``, is the table of the KV slot of each position.
Trees are chains: topk 1. :mod:`sglang_specv2.cpu.reference` defines each function plainly.
"""

import torch
from torch import Tensor

from sglang_specv2.errors import UnsupportedError

QLEN_ONLY = 1
"""SGLang's TreeMaskMode for a mask among the nodes only, its choice on a CPU."""


def ragged_index(rows: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every element of ``rows[i], start[i]:end[i]``, one request after another.

    All ``[bs]``, any integer type. Returns two int64 tensors of ``sum(end - start)`` elements.
    """
    start, lengths = start.long(), (end - start).long()
    shift = start - (torch.cumsum(lengths, 0) - lengths)
    columns = torch.repeat_interleave(shift, lengths)
    return torch.repeat_interleave(rows.long(), lengths), columns + torch.arange(len(columns))


def assign_req_to_token_pool(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Writes ``out_cache_loc`` into the columns ``start_offset[i]:end_offset[i]`` of the table.

    ``req_pool_indices``, ``start_offset``, ``end_offset``: integer ``[bs]``; ``out_cache_loc``:
    integer, the slots of one request after another.
    """
    rows, columns = ragged_index(req_pool_indices, start_offset, end_offset)
    req_to_token[rows, columns] = out_cache_loc[: len(rows)].to(req_to_token.dtype)


def assign_extend_cache_locs(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Reads what :func:`assign_req_to_token_pool` writes; ``out_cache_loc`` may be longer."""
    rows, columns = ragged_index(req_pool_indices, start_offset, end_offset)
    out_cache_loc[: len(rows)] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Reads the ``topk * num_steps`` slots behind each request's ``seq_lens[i]`` positions."""
    end = seq_lens + topk * num_steps
    assign_extend_cache_locs(req_pool_indices, req_to_token, seq_lens, end, out_cache_loc, pool_len)


def fill_bonus_tokens(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """Writes each request's last accepted token into ``bonus_tokens`` ``[bs]``.

    ``accept_tokens``: ``[bs, accept_stride]`` or flat; ``accept_lens``: ``[bs]``, the bonus token
    included.
    """
    last = torch.arange(len(accept_lens)) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.reshape(-1)[last])


def build_chain(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    num_draft_tokens: int,
    tree_mask_mode: int,
) -> None:
    """Writes links, positions and mask of a verify tree that is a chain.

    With n = ``num_draft_tokens``, ``seq_lens``: ``[bs]``; ``positions``: int64 ``[bs * n]``;
    ``retrieve_*``: int64 ``[bs, n]``, -1 everywhere when they come; ``tree_mask``: bool
    ``[bs * n * n]``, which node sees which.

    Raises:
        UnsupportedError: topk above 1, or a mask of another layout.
    """
    if topk != 1:
        raise UnsupportedError(
            f"the CPU engine verifies chains: expected --speculative-eagle-topk 1, got {topk}"
        )
    if tree_mask_mode != QLEN_ONLY:
        raise UnsupportedError(
            f"the CPU engine builds tree masks of mode {QLEN_ONLY} (QLEN_ONLY) only, got mode "
            f"{int(tree_mask_mode)}; serve with --attention-backend torch_native"
        )
    n, bs = num_draft_tokens, len(seq_lens)
    node = torch.arange(n)
    positions.view(bs, n).copy_(seq_lens.long()[:, None] + node)
    retrieve_index.copy_(torch.arange(bs)[:, None] * n + node)
    retrieve_next_token[:, :-1] = node[1:]
    tree_mask[: bs * n * n].view(bs, n, n).copy_(node[:, None] >= node)


def verify_chain_greedy(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Accepts each request's drafts up to the first that is not the target's own choice.

    ``candidates``: int64 ``[bs, n]``, the last bonus token and the drafts; ``target_predict``:
    int64 ``[bs, n]``, the target's token after each of them; ``retrive_index`` (SGLang's spelling):
    int64 ``[bs, n]``, each node's row in the batch. Writes as :func:`accept_chain`.
    """
    agrees = candidates[:, 1:] == target_predict[:, :-1]
    accepted = agrees.int().cumprod(1).sum(1)
    accept_chain(predicts, accept_index, accept_token_num, retrive_index, accepted, target_predict)


def accept_chain(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    retrieve_index: Tensor,
    accepted: Tensor,
    tokens: Tensor,
) -> None:
    """Writes the outcome of a verification in which ``accepted`` ``[bs]`` drafts were right.

    ``tokens``: ``[bs, n]``, the token after each node. Written: ``predicts`` int32 ``[bs * n]``,
    that token at the rows of the kept nodes; ``accept_index`` int32 ``[bs, n]``, the kept rows and
    -1 behind them; ``accept_token_num`` int32 ``[bs]``, ``accepted``.
    """
    kept = torch.arange(tokens.shape[1]) <= accepted[:, None]
    predicts[retrieve_index[kept]] = tokens[kept].to(predicts.dtype)
    accept_index.copy_(retrieve_index.where(kept, -1))
    accept_token_num.copy_(accepted)


def gather_spec_extras(
    indices: Tensor,
    topk_p_buf: Tensor,
    topk_index_buf: Tensor,
    output_tokens_buf: Tensor,
    hidden_states_buf: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The rows ``indices`` (integer ``[bs]``) of each relay buffer (``[request slots, ...]``)."""
    rows = indices.long()
    hidden_states = None if hidden_states_buf is None else hidden_states_buf[rows]
    return topk_p_buf[rows], topk_index_buf[rows], output_tokens_buf[rows], hidden_states


def copy_all_layer_kv_cache(
    data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor
) -> None:
    """Accepts the copy of rows onto themselves, which SGLang makes as a warm-up: chains move none.

    Raises:
        UnsupportedError: a row would move.
    """
    if not torch.equal(tgt_loc, src_loc):
        raise UnsupportedError(
            "the CPU engine moves no KV rows, which only trees need: expected topk 1"
        )
