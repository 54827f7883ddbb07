"""Requests and answers for tests of the tree, without a dialect."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.minted import Minted
from gymmesh_agent.gateway.request import GatewayRequest, Hints
from gymmesh_agent.gateway.tree import CallTree, NewCall, RepeatedCall, SideCallRule

TAG = "0123abcd"


def message(role: str, *texts: str, id: str = "") -> pb.Item:
    """A message with a text, or with several parts."""
    if len(texts) == 1:
        item = pb.Item(message=pb.Message(role=role, text=texts[0]))
    else:
        item = pb.Item(message=pb.Message(role=role))
        for text in texts:
            if role == "assistant":
                item.message.parts.parts.add().output_text.text = text
            else:
                item.message.parts.parts.add().input_text.text = text
    if id:
        item.message.id = id
    return item


def call(name: str, arguments: bytes, call_id: str) -> pb.Item:
    """A function call."""
    return pb.Item(function_call=pb.FunctionCall(name=name, arguments=arguments, call_id=call_id))


def output(call_id: str, text: str) -> pb.Item:
    """A function call's output."""
    return pb.Item(function_call_output=pb.FunctionCallOutput(call_id=call_id, text=text.encode()))


def reasoning(text: str) -> pb.Item:
    """A reasoning item."""
    return pb.Item(reasoning=pb.Reasoning(content=pb.ReasoningTexts(texts=[text])))


def wire_id(call_id: str, place: int) -> str:
    """The id that the program gets for an output item of a recorded call."""
    return Minted(TAG, call_id, place).id("call")


def echo(call_id: str, items: Sequence[pb.Item]) -> list[pb.Item]:
    """A recorded answer as a program that changes nothing sends it back."""
    found = []
    for place, item in enumerate(items):
        copied = pb.Item()
        copied.CopyFrom(item)
        if copied.HasField("function_call"):
            copied.function_call.call_id = wire_id(call_id, place)
        found.append(copied)
    return found


def request(
    items: Sequence[pb.Item],
    *,
    system: str = "You are an agent.",
    tools: Sequence[dict[str, Any]] = ({"type": "function", "name": "shell"},),
    instructions: str = "",
    hints: Hints | None = None,
    params: dict[str, Any] | None = None,
) -> GatewayRequest:
    """A request; its digest is over all that decides the answer."""
    lead = [message("system", system)] if system else []
    whole = (*lead, *items)
    digest = blake2b(digest_size=16)
    for item in whole:
        digest.update(item.SerializeToString(deterministic=True) + b"\xff")
    digest.update(repr((instructions, tools, params)).encode())
    return GatewayRequest(
        dialect="chat",
        items=whole,
        instructions=instructions,
        tools=tuple(tools),
        params=params or {},
        hints=hints or Hints(),
        digest=digest.digest(),
    )


class Captured:
    """A tree with a model behind it that answers what it is told to."""

    def __init__(self, program: str = "", side_calls: Sequence[SideCallRule] = ()) -> None:
        self.tree = CallTree(TAG, program, side_calls)
        self._calls = 0

    def ask(self, asked: GatewayRequest, answer: Sequence[pb.Item]) -> NewCall:
        """Place a request that is a call of its own, answer and deliver it."""
        placed = self.place(asked)
        self.answer(placed, answer)
        self.tree.delivered(placed.ticket)
        return placed

    def place(self, asked: GatewayRequest) -> NewCall:
        """Place a request that is a call of its own."""
        placed = self.tree.place(asked)
        assert isinstance(placed, NewCall)
        return placed

    def repeated(self, asked: GatewayRequest) -> int:
        """Place a request that repeats a call: the call's ticket."""
        placed = self.tree.place(asked)
        assert isinstance(placed, RepeatedCall)
        return placed.ticket

    def answer(self, placed: NewCall, answer: Sequence[pb.Item]) -> None:
        """Answer a call; its id is `c` and its ticket."""
        self.tree.answered(placed.ticket, f"c{placed.ticket}", answer)
