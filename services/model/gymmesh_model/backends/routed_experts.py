"""How vLLM and SGLang give the routed experts of mixture-of-experts models. Pure.

Facts: vLLM with `--enable-return-routed-experts` has `routed_experts` in each choice of a whole
answer: an array of numpy's format (`.npy`) in base64, a row of [layers, experts] for each token but
the last, which no forward pass read. Since its change 51906 a request leaves out the first rows
with `routed_experts_prompt_start`. Other versions have the prompt's rows in
`prompt_routed_experts` beside the choices. SGLang with the same option has `routed_experts` in
`meta_info`: int32 in base64, without the shape, from `routed_experts_start_len` on.
"""

from __future__ import annotations

import ast
import binascii
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens import SideRows
from gymmesh_responses import row_bytes

ROUTED_EXPERTS: Final = "routed_experts"
_MAGIC: Final = b"\x93NUMPY"
_DTYPES: Final = {
    "|i1": "int8", "|u1": "uint8", "<i2": "int16", "<u2": "uint16", "<i4": "int32",
}  # fmt: skip


def npy_experts(
    answer: Mapping[str, Any], choice: Mapping[str, Any], prompt: int, sampled: int, first: int
) -> SideRows:
    """The rows in an answer of vLLM.

    prompt, sampled: how many tokens. first: the first row that was asked for. Raises AnswerInvalid.
    """
    rows = _npy(choice.get(ROUTED_EXPERTS))
    of_prompt = answer.get("prompt_routed_experts")
    if of_prompt is not None:
        # Only then the choice has no rows of the prompt.
        before = _npy(of_prompt)
        if (before.dtype, before.shape) != (rows.dtype, rows.shape):
            raise AnswerInvalid(
                "the response's prompt_routed_experts and routed_experts differ in type or shape"
            )
        rows = SideRows(rows.name, rows.dtype, rows.shape, 0, bytes(before.data) + bytes(rows.data))
    return _placed(rows, prompt + sampled - 1, first)


def int32_experts(
    meta: Mapping[str, Any], shape: tuple[int, int], prompt: int, sampled: int, first: int
) -> SideRows:
    """The rows in an answer's `meta_info` of SGLang. Raises AnswerInvalid."""
    data = _decoded(meta.get(ROUTED_EXPERTS))
    if len(data) % row_bytes("int32", shape):
        raise AnswerInvalid(
            "the size of the response's routed_experts is not a whole number of rows of the shape "
            f"{list(shape)}"
        )
    return _placed(SideRows(ROUTED_EXPERTS, "int32", shape, 0, data), prompt + sampled - 1, first)


def _placed(rows: SideRows, expected: int, first: int) -> SideRows:
    """The rows with the token that they begin at, by how many there are."""
    for start in (first, 0):
        if rows.tokens == expected - start:
            return SideRows(rows.name, rows.dtype, rows.shape, start, rows.data)
    raise AnswerInvalid(
        f"the response has {rows.tokens} rows of routed_experts for {expected} tokens, from token "
        f"{first} on"
    )


def _decoded(given: Any) -> bytes:
    if not isinstance(given, str):
        raise AnswerInvalid(
            "the response has no routed_experts; start the server with "
            "--enable-return-routed-experts, or "
            "remove them from the model's options"
        )
    try:
        return binascii.a2b_base64(given)
    except (binascii.Error, ValueError):
        raise AnswerInvalid("the response's routed_experts are not base64") from None


def _npy(given: Any) -> SideRows:
    """An array of numpy's format, read without numpy: a header of text, then the numbers."""
    raw = _decoded(given)
    invalid = AnswerInvalid(
        "the response's routed_experts are not an array of whole numbers in numpy's format"
    )
    if not raw.startswith(_MAGIC) or len(raw) < 12:
        raise invalid
    length = 2 if raw[6] == 1 else 4
    begin = 8 + length
    data = begin + int.from_bytes(raw[8:begin], "little")
    try:
        header = ast.literal_eval(raw[begin:data].decode("latin-1").strip())
        dtype, shape = _DTYPES[header["descr"]], header["shape"]
        tokens, layers, experts = map(int, shape)
        size = row_bytes(dtype, (layers, experts))
    except (ValueError, SyntaxError, TypeError, KeyError):
        raise invalid from None
    if header.get("fortran_order") or len(raw) - data != tokens * size:
        raise invalid
    return SideRows(ROUTED_EXPERTS, dtype, (layers, experts), 0, memoryview(raw)[data:])
