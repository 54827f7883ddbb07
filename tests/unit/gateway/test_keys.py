"""The rollout's key, which a program shows to the model: no event and no model request has it."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway import server
from gymmesh_agent.gateway.gateway import Gateway
from tests.unit.agent.mesh import ask
from tests.unit.agent.servicers import call, calls, says
from tests.unit.agent.streams import model_calls
from tests.unit.gateway.programs import client, posting, serving

TOOL: Any = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
PATHS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/m:generateContent",
)


def body_of(path: str, text: str) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    if path == "/v1/responses":
        return {"model": "m", "input": text, "instructions": text}
    if "generateContent" in path:
        part = {"parts": [{"text": text}]}
        return {"contents": [{"role": "user", **part}], "systemInstruction": part}
    return {"model": "m", "max_tokens": 9, "messages": [message]}


@pytest.mark.parametrize("path", PATHS)
async def test_no_body_brings_the_key_to_the_model_or_into_an_event(path: str) -> None:
    keys: list[str] = []

    async def program(gateway: Gateway) -> None:
        keys.append(gateway.key)
        async with posting(gateway, body_of(path, f"OPENAI_API_KEY={gateway.key}\n"), path=path):
            pass

    async with serving(program, says("x")) as mesh:
        events = await mesh.run(ask())
        (request,) = mesh.models["policy"].requests
    for message in (request, *events):
        assert keys[0].encode() not in message.SerializeToString(), message
    assert b"OPENAI_API_KEY=***" in request.SerializeToString()


@pytest.mark.parametrize("large", [False, True])
async def test_a_tools_output_with_the_key_continues_the_conversation(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # such bodies are read in a thread
        monkeypatch.setattr(server, "_LARGE_BODY", 0)
    keys: list[str] = []

    async def program(gateway: Gateway) -> None:
        keys.append(gateway.key)
        messages: list[Any] = [{"role": "user", "content": "Which variables are set?"}]
        async with client(gateway) as openai_client:
            for _ in range(3):
                completion = await openai_client.chat.completions.create(
                    model="m", messages=messages, tools=[TOOL]
                )
                message = completion.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                for function in message.tool_calls or ():
                    env = f"OPENAI_API_KEY={gateway.key}\nHOME=/root"
                    messages.append({"role": "tool", "tool_call_id": function.id, "content": env})

    env = calls(call("shell", '{"command": "env"}'))
    async with serving(program, env, env, says("two")) as mesh:
        events = await mesh.run(ask())
    first, second, third = model_calls(events)
    links = [one.link for one in (first, second, third)]
    assert links == [rollout_pb2.CALL_LINK_CONTINUATION] * 3
    assert (second.parent_call_id, third.parent_call_id) == (first.call_id, second.call_id)
    (output,) = second.context_items
    assert output.function_call_output.text == b"OPENAI_API_KEY=***\nHOME=/root"
    assert not [one for one in events if keys[0].encode() in one.SerializeToString()]


async def test_other_texts_of_a_keys_form_stay() -> None:
    other = "sk-gymmesh-" + "x" * 32

    async def program(gateway: Gateway) -> None:
        async with posting(gateway, body_of(PATHS[0], other)) as response:
            assert response.status == 200

    async with serving(program, says("x")) as mesh:
        await mesh.run(ask())
        assert other.encode() in mesh.models["policy"].requests[0].SerializeToString()
