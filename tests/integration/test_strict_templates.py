"""Endpoints whose chat template takes less than others: one system message, one call an answer."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_responses import text_of
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.integration.test_model_service import ask, configured, request, serving
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint, Seen
from tests.unit.trainers.char_model import CharTokenizer

Json = dict[str, Any]


def call(name: str) -> Json:
    return {"type": "function_call", "call_id": name, "name": "add", "arguments": "{}"}


def output(name: str) -> Json:
    return {"type": "function_call_output", "call_id": name, "output": f"of {name}"}


TWO_CALLS: list[Json] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "both"},
    call("c1"),
    call("c2"),
    output("c1"),
    output("c2"),
]


def refuses_two_calls(status: int, words: str) -> Any:
    def reply(seen: Seen) -> Any:
        calls = [len(message.get("tool_calls") or ()) for message in seen.body["messages"]]
        return fake.status(status, message=words) if max(calls) > 1 else fake.text("done")

    return reply


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "This model only supports single tool-calls at once!"),
        (400, "invalid conversation"),
        (500, "Jinja Exception: This model only supports single tool-calls at once!"),
    ],
)
async def test_a_template_that_takes_one_call(status: int, words: str, stream: bool) -> None:
    async with (
        FakeEndpoint(default=refuses_two_calls(status, words)) as server,
        serving(configured("chat", server)) as service,
    ):
        for asked in (2, 1):  # the second time it is known
            if stream:
                one = model_pb2.StreamResponseRequest(call=request({"input": TWO_CALLS}))
                stream_of = service.StreamResponse(one, CallContext("StreamResponse"))
                reply = [frame async for frame in stream_of][-1].completed
            else:
                reply = await ask(service, request({"input": TWO_CALLS}))
            assert text_of(reply.response.output[0]) == "done"
            assert len(server.requests) == asked
            messages = server.requests[-1].body["messages"]
            server.requests.clear()
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
    assert [one["content"] for one in messages if one["role"] == "assistant"] == ["both", None]
    ids = [one["tool_calls"][0]["id"] for one in messages if one["role"] == "assistant"]
    assert ids == [one["tool_call_id"] for one in messages if one["role"] == "tool"] == ["c1", "c2"]


async def test_a_refusal_for_another_cause_stays_one() -> None:
    async with (
        FakeEndpoint(default=fake.status(400, message="no such model")) as server,
        serving(configured("chat", server)) as service,
    ):
        for _ in range(2):
            with pytest.raises(MeshError, match="no such model"):
                await ask(service, request({"input": TWO_CALLS}))
        # One that may be due to the calls is asked twice, any other once.
        assert len(server.requests) == 4
        with pytest.raises(MeshError, match="no such model"):
            await ask(service, request({"input": "hi"}))
        assert len(server.requests) == 5


async def test_an_engines_template_that_takes_one_call() -> None:
    class Strict(CharTokenizer):
        def apply_chat_template(self, conversation: list[Json], **options: Any) -> Any:
            if any(len(message.get("tool_calls") or ()) > 1 for message in conversation):
                raise ValueError("This model only supports single tool-calls at once!")
            return super().apply_chat_template(conversation, **options)

    tokenizer = Strict()

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([ord("k")], finished=True)

    backend = TokenBackend(tokenizer, generate)
    response = await backend.create(BackendCall({"input": TWO_CALLS}, "r", "", None, 60.0))
    assert response.status == "completed"


def only_first_system(seen: Seen) -> Any:
    late = any(message["role"] == "system" for message in seen.body["messages"][1:])
    return fake.status(400, message="System message must be first") if late else fake.text("ok")


SYSTEMS: list[Json] = [
    {"role": "developer", "content": "Be exact."},
    {"role": "user", "content": "a"},
    {"role": "system", "content": "Be quick."},
    {"role": "user", "content": "b"},
]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (
            "merge",
            [
                ("system", "Be brief.\n\nBe exact."),
                ("user", "a"),
                ("user", "Be quick."),
                ("user", "b"),
            ],
        ),
        (
            "first",
            [("system", "Be brief.\n\nBe exact.\n\nBe quick."), ("user", "a"), ("user", "b")],
        ),
    ],
)
async def test_several_system_messages(how: str, expected: list[tuple[str, str]]) -> None:
    async with FakeEndpoint(default=only_first_system) as server:
        options = {} if how == "merge" else {"system_messages": how}
        async with serving(configured("chat", server, options=options)) as service:
            await ask(service, request({"input": SYSTEMS, "instructions": "Be brief."}))
        sent = [(one["role"], one["content"]) for one in server.requests[0].body["messages"]]
    assert sent == expected


async def test_system_messages_that_are_kept() -> None:
    async with FakeEndpoint(default=fake.text("ok")) as server:
        config = configured("chat", server, options={"system_messages": "keep"})
        async with serving(config) as service:
            await ask(service, request({"input": SYSTEMS, "instructions": "Be brief."}))
        roles = [one["role"] for one in server.requests[0].body["messages"]]
    assert roles == ["system", "system", "user", "system", "user"]
