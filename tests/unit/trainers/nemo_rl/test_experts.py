"""Routed experts in rows for NeMo RL: one for each token that a call read and sampled."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy
import pytest
from aiohttp.test_utils import TestClient, TestServer

from gymmesh_model.tokens import SideRows
from gymmesh_trainers import Generation, SamplingParams, TokenBackend
from gymmesh_trainers.nemo_rl import NemoAgent
from tests.unit.trainers.char_model import EOS, CharTokenizer
from tests.unit.trainers.environments import Sums
from tests.unit.trainers.nemo_rl.test_rows import row

CALL = '<tool_call>{"name": "add", "arguments": {"left": 1, "right": 1}}</tool_call>'


def engine(dtype: str) -> Any:
    """Calls the tool, then answers; the experts of a token are made of its id."""

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        first = EOS not in prompt[prompt.index(EOS) + 1 :]
        ids = [*CharTokenizer().encode(CALL if first else "2"), EOS]
        tokens = numpy.array([*prompt, *ids][:-1])
        experts = numpy.stack([tokens % 100, tokens % 7], axis=1).reshape(-1, 2, 1).astype(dtype)
        rows = SideRows.of_array("routed_experts", experts)
        return Generation(ids, [-0.5] * len(ids), side_data=[rows])

    return TokenBackend(CharTokenizer(), generate, side_data=["routed_experts"])


def decoded(envelope: str) -> Any:
    """As NeMo RL's codec reads it."""
    magic, dtype, shape, data = envelope.split(":")
    assert magic == "nrlre1"
    return numpy.frombuffer(base64.b64decode(data), dtype).reshape(*map(int, shape.split("x")))


@pytest.mark.parametrize(("dtype", "sent"), [("uint8", "int16"), ("int8", "int8")])
async def test_each_call_has_a_row_for_each_token_that_it_read_and_sampled(
    dtype: str, sent: str, tmp_path: Path
) -> None:
    agent = NemoAgent(
        Sums(), model=engine(dtype), side_data=["routed_experts"], side_data_path=tmp_path
    )
    async with (
        TestClient(TestServer(agent.application())) as client,
        client.post("/run", json=row()) as answer,
    ):
        assert answer.status == 200, await answer.text()
        output = (await answer.json())["response"]["output"]
    items = [one for one in output if one.get("generation_token_ids")]
    assert len(items) == 2
    for place, item in enumerate(items):
        tokens = numpy.array([*item["prompt_token_ids"], *item["generation_token_ids"]])
        experts = decoded(item["routed_experts"])
        assert experts.dtype == sent
        assert experts.shape == (len(tokens), 2, 1)
        # The next call read the last token of this one; nothing read the last of all.
        known = len(tokens) - (1 if place == 1 else 0)
        assert (experts[:known, 0, 0] == tokens[:known] % 100).all()
        assert (experts[:known, 1, 0] == tokens[:known] % 7).all()
        assert (experts[known:] == -1).all()
