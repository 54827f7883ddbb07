"""How a call goes on from one that left much, little or nothing behind."""

from __future__ import annotations

import struct

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.model.answer import read_answer
from gymmesh_agent.model.conversation import Continuations, ConversationTree, ModelRequest
from gymmesh_agent.plan import RolloutPlans
from gymmesh_responses import new_message, params_from_json, response_from_json
from gymmesh_runtime.errors import MeshError

FIRST = [new_message("user", "hello")]


def tokens(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)


def answer(
    prompt: bytes = b"", output: bytes = b"", prefix: int = 0
) -> model_pb2.CreateResponseResponse:
    """An answer of one message; with tokens where there are any."""
    said = {"role": "assistant", "content": "hi", "type": "message"}
    reply = model_pb2.CreateResponseResponse(
        response=response_from_json({"id": "r", "status": "completed", "output": [said]}),
        conversation_token=b"token",
    )
    if output:
        reply.tokens.prompt_token_ids = prompt
        reply.tokens.output_token_ids = output
        reply.tokens.prompt_prefix_tokens = prefix
    return reply


class Calls:
    """The calls of one actor, one after the other."""

    def __init__(self, *, capture: bool) -> None:
        self.tree = ConversationTree(FIRST)
        plans = RolloutPlans(AgentConfig(capture_tokens=capture), ())
        plan = plans.read(agent_pb2.RolloutOptions(), params_from_json({}))
        self.continuations = Continuations("r/1", self.tree, plan)
        self.last = ""
        self.count = 0

    def call(
        self, reply: model_pb2.CreateResponseResponse, model: str = "policy"
    ) -> tuple[ModelRequest, tokens_pb2.TokenCapture | None, MeshError | None]:
        self.count += 1
        call_id = f"c{self.count}"
        about = rollout_pb2.ModelCallCompleted(
            call_id=call_id, model=model, parent_call_id=self.last
        )
        request = self.continuations.request(about, "policy", None, ())
        call = read_answer(reply, call_id)
        capture, breach = self.continuations.answered(request, reply, call)
        self.tree.add_call(
            call_id, parent=self.last, detached=False, context=(), output=call.output
        )
        self.last = call_id
        return request, capture, breach


@pytest.mark.parametrize("capture", [False, True])
def test_tokens_that_come_late_stand_on_nothing(capture: bool) -> None:
    calls = Calls(capture=capture)
    assert calls.call(answer())[1:] == (None, None)
    _, first, breach = calls.call(answer(tokens(1, 2), tokens(3)))
    assert first is not None
    assert breach is None
    assert first.prompt_token_ids == tokens(1, 2)
    _, second, breach = calls.call(answer(tokens(1, 2, 3, 4), tokens(5)))
    assert second is not None
    assert breach is None
    assert (second.prompt_token_ids, second.prompt_prefix_tokens) == (tokens(4), 3)
    _, third, breach = calls.call(answer(tokens(9), tokens(5)))
    if capture:
        assert breach is not None
        assert breach.reason_name == "TOKENS_DIVERGED"
    else:  # the service was told nothing of the tokens before
        assert breach is None
        assert third is not None
        assert third.fork.reason == tokens_pb2.FORK_REASON_BACKEND


def test_a_prefix_without_a_call_before_it_is_a_breach() -> None:
    calls = Calls(capture=True)
    calls.call(answer())
    _, _, breach = calls.call(answer(tokens(1), tokens(2), prefix=3))
    assert breach is not None
    assert breach.reason_name == "TOKENS_DIVERGED"


def test_what_the_service_was_not_asked_to_keep_is_sent_whole() -> None:
    calls = Calls(capture=False)
    asked = [calls.call(answer())[0] for _ in range(9)]
    known = [None if one.continuation is None else one.continuation.known_items for one in asked]
    # The first that is long enough is sent whole; from then on each goes on from the last.
    assert known == [None] * 6 + [0, 8, 9]
    assert [one.parent for one in asked[7:]] == ["c7", "c8"]


def test_a_conversation_without_a_token_is_sent_whole() -> None:
    calls = Calls(capture=True)
    reply = answer(tokens(1), tokens(2))
    reply.ClearField("conversation_token")
    calls.call(reply)
    request, _, breach = calls.call(answer(tokens(3), tokens(4), prefix=2))
    assert breach is None
    assert request.continuation is not None
    assert request.continuation.known_items == 0


def test_another_model_goes_on_from_nothing() -> None:
    calls = Calls(capture=True)
    calls.call(answer(tokens(1), tokens(2)))
    request, capture, breach = calls.call(answer(tokens(7), tokens(8)), model="critic")
    assert (request.parent, breach) == ("", None)
    assert capture is not None
    assert capture.prompt_token_ids == tokens(7)
