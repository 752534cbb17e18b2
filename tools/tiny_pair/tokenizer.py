"""Byte-level tokenizer: the id of a byte is its value, special tokens follow from 256 on."""

from __future__ import annotations

import json
from pathlib import Path

END = "<|end|>"
PAD = "<|pad|>"
SYSTEM = "<|system|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
# Eight, so that the vocabulary is a multiple of 8: tensor cores want aligned matrix sizes.
SPECIAL_TOKENS = (END, PAD, SYSTEM, USER, ASSISTANT, "<|spare0|>", "<|spare1|>", "<|spare2|>")
SPECIAL_IDS = {token: 256 + i for i, token in enumerate(SPECIAL_TOKENS)}
END_ID = SPECIAL_IDS[END]
VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def encode(text: str) -> list[int]:
    """Ids of plain text (special tokens in it are read as ordinary bytes)."""
    return list(text.encode("utf-8"))


def decode(ids: list[int]) -> str:
    """Text of ids; special tokens by name, broken UTF-8 as U+FFFD."""
    out = bytearray()
    for token in ids:
        out += bytes([token]) if token < 256 else SPECIAL_TOKENS[token - 256].encode()
    return out.decode("utf-8", errors="replace")


def encode_chat(messages: list[tuple[str, str]], *, add_generation_prompt: bool) -> list[int]:
    """Ids of (role, content) messages, equal to what CHAT_TEMPLATE and the tokenizer give."""
    ids: list[int] = []
    for role, content in messages:
        ids += [SPECIAL_IDS[f"<|{role}|>"], *encode("\n" + content), END_ID, *encode("\n")]
    if add_generation_prompt:
        ids += [SPECIAL_IDS[ASSISTANT], *encode("\n")]
    return ids


def _printable_byte_names() -> list[str]:
    """One printable character per byte, as GPT-2's byte-level alphabet names them.

    The `tokenizers` library's ByteLevel pre-tokenizer maps bytes to these characters, so a
    vocabulary that is to hold all bytes has to use the same names.
    """
    kept = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    names, moved = [], 0
    for byte in range(256):
        if byte in kept:
            names.append(chr(byte))
        else:
            names.append(chr(256 + moved))
            moved += 1
    return names


def save(folder: Path, *, max_positions: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, readable by AutoTokenizer offline."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    added = [
        {
            "id": SPECIAL_IDS[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in SPECIAL_TOKENS
    ]
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {
                **{name: byte for byte, name in enumerate(_printable_byte_names())},
                **SPECIAL_IDS,
            },
            "merges": [],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": PAD,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_positions,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
