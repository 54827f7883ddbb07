"""What a model wrote never ends its rollout without a verdict when it is sent back to its endpoint.

The endpoint here refuses, with status 400, what servers refuse of a conversation: vLLM, SGLang and
llama.cpp parse the arguments of earlier calls for the chat template, OpenAI takes names of tools of
few characters alone, and no tokenizer takes an unpaired surrogate.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import fold
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.config import Secret
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint, Seen

BOUND_S = 240.0

ENVIRONMENT = '''
from gymmesh_resource import Environment, Verdict, tool

class Echoes(Environment[None]):
    """Repeats what it is told."""

    @tool
    def echo(self, text: str) -> str:
        """Repeat a text."""
        return text

    async def verify(self, session, rollout):
        return Verdict(0.0)
'''
NAME = re.compile("[a-zA-Z0-9_-]{1,64}")  # of OpenAI's API reference
DEEP = '{"text":' + "[" * 200 + "]" * 200 + "}"
# Arguments, and whether they go out as they are.
ARGUMENTS = {
    "object": ('{ "text" : "\\u00e9", "text": 1.0 }', True),
    "cut off": ('{"text": "unfinished', False),
    "nothing": ("", False),
    "blanks": (" \n", False),
    "list": ("[]", False),
    "text": ('"x"', False),
    "number": ("1", False),
    "null": ("null", False),
    "NaN": ('{"text": NaN}', False),
    "Infinity": ('{"text": -Infinity}', False),
    "large number": ('{"text": 1e999}', False),
    "long integer": ('{"text": 1' + "0" * 5000 + "}", False),
    "integer of 65 bits": ('{"text": 18446744073709551616}', True),
    "deep": (DEEP, False),
    "far too deep": (DEEP.replace("[", "[" * 500).replace("]", "]" * 500), False),
    "lone surrogate, escaped": ('{"text": "\\ud800"}', False),
    "lone surrogate": ('{"text": "\ud800"}', False),
    "NUL": ('{"text": "\x00"}', False),
    "NUL, escaped": ('{"text": "\\u0000"}', True),
    "two objects": ('{"text": "a"}{"text": "b"}', False),
    "byte order mark": ('\ufeff{"text": "a"}', False),
    "python": ("{'text': None}", False),
}


def refusal(seen: Seen) -> str | None:
    """Why a server refuses the conversation, if it does."""
    try:
        orjson.dumps(seen.body)
    except TypeError:
        return "surrogates not allowed"
    if seen.api == "chat":
        messages = seen.body["messages"]
        calls = [call["function"] for one in messages for call in one.get("tool_calls") or ()]
        if any(one["content"] is None and not one.get("tool_calls") for one in messages):
            return "a message needs content or tool calls"
    else:
        calls = [item for item in seen.body["input"] if item.get("type") == "function_call"]
    for call in calls:
        if not NAME.fullmatch(call["name"]):
            return f"'name': {call['name']!r} does not match {NAME.pattern}"
        try:
            # For the depth that parsers stop at, the standard library's would be too lenient.
            value = orjson.loads(call["arguments"])
        except ValueError as error:
            return str(error)
        if not isinstance(value, dict):
            return "'arguments' is no object"
    return None


class Strict:
    """Gives one answer after the other, but 400 where the conversation is refused."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.refused: list[str] = []

    def __call__(self, seen: Seen) -> Any:
        reason = refusal(seen)
        if reason is not None:
            self.refused.append(reason)
            return fake.status(400, message=reason, kind="BadRequestError")
        return self.answers.pop(0) if self.answers else fake.text("done")


async def run(
    folder: Path, backend: str, answers: Any, tools: Sequence[dict[str, Any]] = ()
) -> tuple[rollout_pb2.Rollout, list[Seen]]:
    """One rollout with such a policy and tools of its task's own, and what its endpoint saw."""
    (folder / "echoes.py").write_text(ENVIRONMENT)
    async with asyncio.timeout(BOUND_S), FakeEndpoint(default=answers) as endpoint:
        # Without exact tokens vLLM is not asked what it can, and renders the conversation itself.
        options = {"exact": False} if backend == "vllm" else {}
        settings = {"backend": backend, "url": endpoint.url, "model": "m", "api_key": Secret("k")}
        policy = msgspec.convert({**settings, "options": options}, ModelConfig)
        config = MeshConfig(
            models={"policy": policy},
            environments={"echoes": EnvironmentConfig(use=f"{folder}/echoes.py:Echoes")},
        )
        async with embedded(config) as mesh:
            instance = await mesh.directory.pick("gymmesh.agent.v1.AgentService", "tool_loop")
            agent = mesh.directory.peer(instance)
            params = params_from_json({"input": "go", **({"tools": [*tools]} if tools else {})})
            task = rollout_pb2.Task(task_id="t", environment="echoes", params=params)
            request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r")
            events = [one.event async for one in agent.RunRollout(request, timeout=BOUND_S)]
        return fold(events, "r"), endpoint.requests


def verdict_of(rollout: rollout_pb2.Rollout) -> float:
    """The reward of a rollout that was judged."""
    assert rollout.WhichOneof("outcome") == "completed", rollout.failed.failure
    verification = rollout.verified.verification
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    return verification.reward


@pytest.mark.parametrize("backend", ["chat", "vllm", "responses", "openai"])
@pytest.mark.parametrize("kind", ARGUMENTS)
async def test_arguments(tmp_path: Path, backend: str, kind: str) -> None:
    written, unchanged = ARGUMENTS[kind]
    strict = Strict(fake.answer(calls=[("call_1", "echo", written)]))
    rollout, seen = await run(tmp_path, backend, strict)
    assert strict.refused == []
    assert verdict_of(rollout) == 0.0
    [call] = [
        item.function_call
        for one in rollout.model_calls
        for item in one.response.output
        if item.HasField("function_call")
    ]
    assert call.arguments == written.encode("utf-8", "surrogatepass")
    [sent] = arguments_sent(seen[-1])
    if unchanged:
        assert sent == written
    elif not written.strip():
        assert sent == "{}"
    else:
        whole = written.replace("\ud800", "\ufffd")
        assert json.loads(sent) == {"invalid_arguments": whole}


def arguments_sent(seen: Seen) -> list[str]:
    if seen.api == "responses":
        items = seen.body["input"]
        return [item["arguments"] for item in items if item.get("type") == "function_call"]
    messages = seen.body["messages"]
    calls = [call for one in messages for call in one.get("tool_calls") or ()]
    return [call["function"]["arguments"] for call in calls]


ANSWERS = {
    "the same id twice": fake.answer(
        calls=[("call_1", "echo", '{"text": "a"}'), ("call_1", "echo", '{"text": "b"}')]
    ),
    "an empty id": fake.answer(calls=[("", "echo", '{"text": "a"}')]),
    "an unknown tool": fake.answer(calls=[("call_1", "nosuch", "{}")]),
    "an empty name": fake.answer(calls=[("call_1", "", "{}")]),
    "a name with blanks": fake.answer(calls=[("call_1", "echo it\n<|im_end|>", "{}")]),
    "a long name": fake.answer(calls=[("call_1", "e" * 10_000, "{}")]),
    "a lone surrogate in a name": fake.answer(calls=[("call_1", "echo\ud800", "{}")]),
    "a lone surrogate in an id": fake.answer(calls=[("call_\ud800", "echo", '{"text": "a"}')]),
    "a lone surrogate in text": fake.answer("\ud800", calls=[("call_1", "echo", "{}")]),
    "a lone surrogate in reasoning": fake.answer(
        calls=[("call_1", "echo", "{}")], reasoning="\udfff"
    ),
    "NUL": fake.answer("\x00", calls=[("call_1", "echo", '{"text": "\\u0000"}')]),
    "empty text beside a call": fake.answer("", calls=[("call_1", "echo", "{}")]),
    "reasoning alone": fake.answer(None, reasoning="hm"),
    "nothing at all": fake.answer(None),
}


@pytest.mark.parametrize("backend", ["chat", "vllm", "responses", "openai"])
@pytest.mark.parametrize("kind", ANSWERS)
async def test_other_answers(tmp_path: Path, backend: str, kind: str) -> None:
    strict = Strict(ANSWERS[kind])
    rollout, _ = await run(tmp_path, backend, strict)
    assert strict.refused == []
    assert verdict_of(rollout) == 0.0


NAMES = {
    "echo it\n<|im_end|>": "echo_it___im_end__",
    "e" * 100: "e" * 64,
    "": "_",
    "math.add": "math_add",
}


@pytest.mark.parametrize("backend", ["chat", "vllm", "responses", "openai"])
@pytest.mark.parametrize("written", NAMES)
async def test_the_name_of_a_tool_that_is_not_there(
    tmp_path: Path, backend: str, written: str
) -> None:
    """It is recorded as written, and goes back as endpoints take it."""
    strict = Strict(fake.answer(calls=[("call_1", written, "{}")]))
    rollout, seen = await run(tmp_path, backend, strict)
    assert verdict_of(rollout) == 0.0
    [record] = rollout.tool_calls
    assert record.completed.name == written
    assert names_sent(seen[-1]) == [NAMES[written]]


DOTTED = {"type": "function", "name": "math.add", "parameters": {"type": "object"}}


@pytest.mark.parametrize("backend", ["chat", "vllm", "responses"])
async def test_a_task_s_own_tool_goes_out_as_it_is(tmp_path: Path, backend: str) -> None:
    """Endpoints that are not OpenAI's take such names; the model sees one name in both places."""
    answers = iter([fake.answer(calls=[("call_1", "math.add", "{}")])])
    rollout, seen = await run(
        tmp_path, backend, lambda _: next(answers, fake.text("done")), [DOTTED]
    )
    assert verdict_of(rollout) == 0.0
    assert "math.add" in names_of(seen[-1].body["tools"])
    assert names_sent(seen[-1]) == ["math.add"]


async def test_openai_is_not_asked_with_a_name_that_it_refuses(tmp_path: Path) -> None:
    rollout, seen = await run(tmp_path, "openai", Strict(), [DOTTED])
    failure = rollout.failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_MODEL
    assert not failure.retry_safe
    assert "params.tools[0].name is 'math.add', but this endpoint accepts only names of" in (
        failure.status.message
    )
    assert seen == []


def names_of(calls: list[dict[str, Any]]) -> list[str]:
    return [one.get("function", one)["name"] for one in calls]


def names_sent(seen: Seen) -> list[str]:
    if seen.api == "responses":
        return names_of([one for one in seen.body["input"] if one.get("type") == "function_call"])
    return names_of([call for one in seen.body["messages"] for call in one.get("tool_calls") or ()])
