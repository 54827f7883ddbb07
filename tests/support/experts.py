"""Routed experts as vLLM and SGLang give them, made up so that each row says whose it is."""

from __future__ import annotations

import base64
from array import array
from typing import Any

LAYERS, TOP_K = 3, 2
ROW_BYTES = LAYERS * TOP_K

Json = dict[str, Any]


def row(tokens: list[int], place: int) -> list[int]:
    """The experts of the token at a place: by the token, the place, the layer and the slot."""
    return [
        (tokens[place] * 7 + place * 3 + layer * 2 + slot) % 251
        for layer in range(LAYERS)
        for slot in range(TOP_K)
    ]


def rows(tokens: list[int], first: int, end: int) -> bytes:
    """Those of the tokens [first, end), as uint8."""
    return bytes(one for place in range(first, end) for one in row(tokens, place))


def npy(data: bytes, version: int = 1) -> str:
    """Rows as an array in numpy's format, in base64."""
    shape = (len(data) // ROW_BYTES, LAYERS, TOP_K)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    width = 2 if version == 1 else 4
    padding = -(8 + width + len(header) + 1) % 64
    text = f"{header}{' ' * padding}\n".encode()
    magic = b"\x93NUMPY" + bytes((version, 0)) + len(text).to_bytes(width, "little")
    return base64.b64encode(magic + text + data).decode()


def of_vllm(answer: Json, body: Json, prompt: list[int], output: list[int]) -> Json:
    """An answer of vLLM with the rows of all tokens but the last, from where the request says."""
    tokens = prompt + output
    first = body.get("routed_experts_prompt_start", 0)
    answer["choices"][0]["routed_experts"] = npy(rows(tokens, first, len(tokens) - 1))
    return answer


def of_sglang(answer: Json, body: Json, prompt: list[int], output: list[int]) -> Json:
    """The same of SGLang, if the request asks for them."""
    if body.get("return_routed_experts"):
        tokens = prompt + output
        numbers = array("i", list(rows(tokens, body["routed_experts_start_len"], len(tokens) - 1)))
        answer["meta_info"]["routed_experts"] = base64.b64encode(numbers.tobytes()).decode()
    return answer
