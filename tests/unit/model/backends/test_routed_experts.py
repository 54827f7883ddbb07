"""Routed experts in the answers of vLLM and SGLang: exactly theirs, or refused."""

from __future__ import annotations

import base64
from typing import Any

import numpy
import pytest

from gymmesh_model.backends.routed_experts import int32_experts, npy_experts
from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens import SideRows
from tests.support.experts import LAYERS, TOP_K, npy, rows

TOKENS = list(range(100, 110))  # six of the prompt, four sampled


def given(first: int = 0, version: int = 1) -> dict[str, Any]:
    return {"routed_experts": npy(rows(TOKENS, first, 9), version)}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first", [0, 5])
def test_vllm_gives_rows_from_the_token_asked_for(first: int, version: int) -> None:
    found = npy_experts({}, given(first, version), 6, 4, first)
    assert (found.dtype, found.shape, found.first_token) == ("uint8", (LAYERS, TOP_K), first)
    assert bytes(found.data) == rows(TOKENS, first, 9)


def test_a_server_that_ignores_where_to_begin_gives_all_rows() -> None:
    found = npy_experts({}, given(), 6, 4, 5)
    assert (found.first_token, found.tokens) == (0, 9)


def test_a_server_that_has_the_rows_of_the_prompt_apart() -> None:
    answer = {"prompt_routed_experts": npy(rows(TOKENS, 0, 6))}
    found = npy_experts(answer, given(6), 6, 4, 0)
    assert bytes(found.data) == rows(TOKENS, 0, 9)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({}, "--enable-return-routed-experts"),
        ({"routed_experts": [[[1]]]}, "--enable-return-routed-experts"),
        ({"routed_experts": "§"}, "base64"),
        ({"routed_experts": base64.b64encode(b"\x93NUMPY\x01\x00\x05\x00{no}").decode()}, "numpy"),
        ({"routed_experts": npy(rows(TOKENS, 0, 9))[:-8]}, "numpy"),
        (given(1), "8 rows of routed_experts for 9 tokens"),
    ],
)
def test_what_is_not_theirs_is_refused(choice: dict[str, Any], words: str) -> None:
    with pytest.raises(AnswerInvalid, match=words):
        npy_experts({}, choice, 6, 4, 0)


def test_sglang_gives_int32_without_a_shape() -> None:
    data = b"".join(one.to_bytes(4, "little") for one in rows(TOKENS, 2, 9))
    meta = {"routed_experts": base64.b64encode(data).decode()}
    found = int32_experts(meta, (LAYERS, TOP_K), 6, 4, 2)
    assert (found.first_token, found.tokens, found.dtype) == (2, 7, "int32")
    with pytest.raises(AnswerInvalid, match="whole number of rows"):
        int32_experts(meta, (LAYERS, TOP_K + 3), 6, 4, 2)
    with pytest.raises(AnswerInvalid, match="rows of routed_experts"):
        int32_experts(meta, (LAYERS, TOP_K), 6, 5, 2)


def test_an_array_of_numpy_is_taken_as_it_is() -> None:
    array = numpy.arange(24, dtype="int16").reshape(4, 3, 2)
    whole = SideRows.of_array("routed_experts", array).checked(4)
    assert (whole.dtype, whole.shape, whole.tokens) == ("int16", (3, 2), 4)
    assert bytes(whole.data) == array.tobytes()
    turned = SideRows.of_array("values", array.T).checked(2)
    assert bytes(turned.data) == array.T.copy().tobytes()
    with pytest.raises(AnswerInvalid, match=r"dtype"):
        SideRows.of_array("values", array.astype(">i4")).checked(4)
