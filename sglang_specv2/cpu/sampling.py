"""Torch versions of the ``sgl_kernel`` operators that verify a chain by sampling."""

import torch
from torch import Tensor

from sglang_specv2.cpu.kernels import accept_chain


def top_k_renorm_prob(probs: Tensor, top_ks: Tensor) -> Tensor:
    """Each row's ``top_ks[i]`` most likely tokens, renormalised; ties with the last of them stay.

    ``probs``: float32 ``[rows, vocab]``; ``top_ks``: integer ``[rows]``, at least 1.
    """
    ordered = probs.sort(dim=-1, descending=True).values
    last = top_ks.long().clamp(max=probs.shape[-1]) - 1
    return _renormalised(probs, ordered.gather(-1, last[:, None]))


def top_p_renorm_prob(probs: Tensor, top_ps: Tensor) -> Tensor:
    """Each row's fewest most likely tokens that hold ``top_ps[i]`` of the mass, renormalised.

    Ties with the last of them stay. ``probs``: float32 ``[rows, vocab]``; ``top_ps``: float32
    ``[rows]`` in (0, 1].
    """
    ordered = probs.sort(dim=-1, descending=True).values
    mass_before = ordered.cumsum(-1) - ordered
    kept = (mass_before < top_ps[:, None]).sum(-1, keepdim=True)
    return _renormalised(probs, ordered.gather(-1, kept.clamp(min=1) - 1))


def _renormalised(probs: Tensor, least: Tensor) -> Tensor:
    kept = probs.where(probs >= least, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def verify_chain_sampling(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Accepts each draft with the target's probability of it, then samples one token more.

    That token follows the last accepted node and is not the draft that was rejected there. With
    both thresholds at 1 the tokens have the target's distribution: rejection sampling (Leviathan et
    al. 2023, https://arxiv.org/abs/2211.17192) for a proposal that is certain of its token. As
    SGLang's flags say, a draft of at least ``threshold_single`` is accepted outright, and
    ``threshold_acc`` below 1 accepts more of the others.

    ``candidates``: int64 ``[bs, n]``; ``target_probs``: float32 ``[bs, n, vocab]``, after each
    node; ``uniform_samples``: float32 ``[bs, n]`` in [0, 1), column j for draft j + 1;
    ``uniform_samples_for_final_sampling``: float32 ``[bs]`` in [0, 1). ``draft_probs`` is not read.
    Writes as :func:`sglang_specv2.cpu.kernels.accept_chain`.
    """
    drafts = candidates[:, 1:]
    probability = target_probs[:, :-1].gather(-1, drafts[..., None]).squeeze(-1)
    drawn = uniform_samples[:, :-1] * threshold_acc < probability
    accepted = (drawn | (probability >= threshold_single)).int().cumprod(1).sum(1)

    request = torch.arange(len(accepted))
    after = target_probs[request, accepted]
    rejected = request[accepted < drafts.shape[1]]
    after[rejected, drafts[rejected, accepted[rejected]]] = 0.0
    mass = after.cumsum(-1)
    goal = uniform_samples_for_final_sampling * mass[:, -1]
    sampled = (mass > goal[:, None]).int().argmax(-1)

    tokens = torch.cat((drafts, sampled[:, None]), dim=1)
    tokens[request, accepted] = sampled
    accept_chain(predicts, accept_index, accept_token_num, retrive_index, accepted, tokens)


def murmur_hash32(seed: Tensor, positions: Tensor, col_indices: Tensor) -> Tensor:
    """MurmurHash3_x86_32 with seed 0 of the 16 bytes (``seed``, ``position``, ``column``).

    SGLang's random numbers of a request with a sampling seed. ``seed``: uint64 ``[n]``;
    ``positions``: integer ``[n]``; ``col_indices``: integer ``[m]``; both taken as 32 bits, all
    little-endian. Returns uint32 ``[n, m]``. Computed in int64, whose products wrap and keep their
    low 32 bits right.
    """
    low = 0xFFFFFFFF

    def rotated(x: Tensor, bits: int) -> Tensor:
        return (x << bits | x >> 32 - bits) & low

    seed = seed.to(torch.int64)[:, None]
    position = positions.to(torch.int64)[:, None]
    column = col_indices.to(torch.int64)[None, :]
    h = torch.zeros_like(seed)
    for block in (seed, seed >> 32, position, column):
        k = rotated((block & low) * 0xCC9E2D51 & low, 15) * 0x1B873593 & low
        h = (rotated(h ^ k, 13) * 5 + 0xE6546B64) & low
    h = h ^ 16
    h = (h ^ h >> 16) * 0x85EBCA6B & low
    h = (h ^ h >> 13) * 0xC2B2AE35 & low
    return (h ^ h >> 16).to(torch.uint32)
