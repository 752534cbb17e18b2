"""A custom logit processor under which a request decodes a given text, in plain steps.

``custom_params["forced"]`` are the tokens, in turn; behind them the model is free. SGLang calls a
processor in a prefill and in plain steps, never in a verify.
"""

from __future__ import annotations

from typing import Any

import torch


class ForcedText:
    def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> Any:
        for row, params in zip(logits, custom_param_list, strict=True):
            turn = params["turn"] = params.get("turn", -1) + 1
            if turn < len(params["forced"]):
                row.fill_(-torch.inf)
                row[params["forced"][turn]] = 0.0
        return logits
