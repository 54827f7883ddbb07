"""Calls of the model service, as the tests with a real vLLM make them."""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import Any, Final

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model import ModelService
from gymmesh_responses import text_of
from gymmesh_runtime.context import CallContext
from tests.support.dialogue import Dialogue, Json, result, user

__all__ = ["ADD", "BOUND_S", "Talk", "call_of", "logprobs_of", "result", "said", "user", "whole"]

BOUND_S: Final = 110.0
ADD: Final[Json] = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}
_numbers = itertools.count(1)


class Talk(Dialogue):
    """A conversation with patience, of its own name, at temperature 0 unless told otherwise."""

    def __init__(self, service: ModelService, **params: Any) -> None:
        super().__init__(service, **{"temperature": 0, "max_output_tokens": 60, **params})
        self.name = f"talk-{next(_numbers)}"

    def request(
        self, *new: Json, whole: bool = False, tokens: bool = True, **params: Any
    ) -> model_pb2.CreateResponseRequest:
        """See Dialogue."""
        request = super().request(*new, whole=whole, tokens=tokens, **params)
        request.rollout_id = request.conversation.id = self.name
        return request

    async def ask(self, *new: Json, **how: Any) -> model_pb2.CreateResponseResponse:
        """See Dialogue."""
        request = self.request(*new, **how)
        async with asyncio.timeout(BOUND_S):
            reply = await self.service.CreateResponse(request, CallContext("CreateResponse"))
        self.take(reply, *new)
        return reply


def said(reply: model_pb2.CreateResponseResponse) -> str:
    """The text of the answer's messages."""
    messages = [item for item in reply.response.output if item.HasField("message")]
    return "".join(text_of(item) for item in messages)


def call_of(reply: model_pb2.CreateResponseResponse) -> responses_pb2.FunctionCall:
    """The one function call of the answer."""
    items = [item for item in reply.response.output if item.HasField("function_call")]
    assert len(items) == 1, reply.response.output
    return items[0].function_call


def whole(talk: Dialogue) -> None:
    """Checks that every call goes on from the tokens of the one before, to the letter."""
    assert not any(capture.HasField("fork") for capture in talk.captures)
    ends = [len(p) + len(o) for p, o in zip(talk.prompts, talk.outputs, strict=True)]
    assert [capture.prompt_prefix_tokens for capture in talk.captures] == [0, *ends[:-1]]


def logprobs_of(capture: tokens_pb2.TokenCapture) -> list[float]:
    """The log probabilities as a list."""
    return [one[0] for one in struct.iter_unpack("<f", capture.logprobs)]
