"""EAGLE-3's training-time test: the draft drafts from every position of known text at once.

Names used here: `f[t]` are the target's auxiliary hidden states at position t, `x[t]` the token.
Row t of the draft reads x[t + 1] and f[t], has rotary position t and predicts x[t + 2]. A chain
that starts behind row t goes on with row t + 1, which reads x[t + 2] and, for want of f[t + 1],
the draft's own output of row t; and so on. Step s of a chain sees the true rows up to t and the
chain's own rows, so every chain hangs on the same true keys and values and differs by s keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .model import Draft


def chain_mask(rows: int, queries: int, step: int, device: torch.device) -> Tensor:
    """[queries, rows + step * queries] bool: keys that step `step` of each chain sees.

    The chains start behind the last `queries` of `rows` true rows.
    """
    base = torch.arange(rows - queries, rows, device=device)
    true_rows = torch.arange(rows, device=device)[None, :] <= base[:, None]
    own = torch.eye(queries, dtype=torch.bool, device=device)
    return torch.cat([true_rows] + [own] * step, dim=1)


def draft_hidden(
    draft: Draft, embedding: torch.nn.Embedding, ids: Tensor, aux: Tensor, queries: int, steps: int
) -> list[Tensor]:
    """Hidden states that `norm` and `lm_head` turn into the proposals of each step.

    Args:
        ids: [B, R + steps] int64, where R is the number of true rows.
        aux: [B, R, 3 H], the target's auxiliary hidden states of positions 0 to R - 1.
        queries: chains start behind the last so many true rows.
        steps: length of a chain, in drafted tokens.

    Returns:
        One [B, queries, H] per step s; entry i predicts `ids[:, R - queries + i + 2 + s]`.
    """
    rows = aux.shape[1]
    if ids.shape[1] != rows + steps:
        raise ValueError(f"expected ids of length {rows + steps}, got {ids.shape[1]}")
    first = rows - queries
    layer, attention = draft.midlayer, draft.midlayer.self_attn

    hidden = draft.fc(aux)
    inputs = layer.rows(embedding(ids[:, 1 : rows + 1]), hidden)
    keys, values = attention.key_value(inputs, draft.rotary.at(0, rows))
    hidden, inputs = hidden[:, first:], inputs[:, first:]

    outputs = []
    for step in range(steps):
        rope = draft.rotary.at(first + step, queries)
        if step > 0:
            tokens = ids[:, first + 1 + step : rows + 1 + step]
            inputs = layer.rows(embedding(tokens), hidden)
            own_keys, own_values = attention.key_value(inputs, rope)
            keys = torch.cat((keys, own_keys), dim=2)
            values = torch.cat((values, own_values), dim=2)
        mask = chain_mask(rows, queries, step, ids.device)
        attended = attention.attend(
            attention.query(inputs, rope), keys, values, causal=False, mask=mask
        )
        hidden = layer.finish(hidden, attended)
        outputs.append(hidden)
    return outputs
