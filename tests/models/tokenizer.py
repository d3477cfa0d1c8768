"""A byte-level tokenizer without merges (id = byte, then three special tokens), and how to generate."""

from __future__ import annotations

from tests.models.chain import BOS, EOS, PAD
from tests.models.documents import to_json

SPECIAL = {BOS: "<|bos|>", EOS: "<|eos|>", PAD: "<|pad|>"}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def _letters() -> list[str]:
    """Byte -> the printable character that stands for it in byte-level vocabularies.

    Printable Latin-1 stands for itself; the others are numbered from U+0100 on in their own order.
    """
    themselves = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in themselves else next(others)) for byte in range(256)]


def _added(number: int) -> dict[str, object]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": SPECIAL[number], **plain, "special": True}


def files() -> dict[str, bytes]:
    """The tokenizer's files by name."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number) for number in SPECIAL],
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
            "vocab": {letter: byte for byte, letter in enumerate(_letters())},
            "merges": [],
        },
    }
    names = {"bos_token": SPECIAL[BOS], "eos_token": SPECIAL[EOS], "pad_token": SPECIAL[PAD]}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    # Greedy unless a request says otherwise: vLLM's CPU build loses the temperature when it verifies drafted tokens.
    generation = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": False, "temperature": 0.0}
    return {
        "tokenizer.json": to_json(tokenizer),
        "tokenizer_config.json": to_json(config),
        "special_tokens_map.json": to_json(names),
        "chat_template.jinja": CHAT_TEMPLATE.encode(),
        "generation_config.json": to_json(generation),
    }
