"""Programs at the gateway over a model with tokens: each token is sampled and trained once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_trainers.rollouts.samples import samples_of
from tests.integration.test_exact_tokens import CAPTURE, captured, exact, mesh_of
from tests.support.dialogue import ids_of
from tests.support.vllm_server import FakeVllm, calls, says
from tests.unit.agent.mesh import ask
from tests.unit.agent.streams import Events, model_calls
from tests.unit.gateway.programs import Program, ProgramAgent, posting

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


async def rollout(server: FakeVllm, program: Program) -> Events:
    ProgramAgent.main = staticmethod(program)
    agent = AgentConfig(use="tests.unit.gateway.programs:ProgramAgent")
    async with mesh_of(server, agent=agent) as (mesh, _):
        return await mesh.run(ask(capture=CAPTURE, max_steps=100))


async def turn(gateway: Gateway, messages: list[Any], **more: Any) -> Any:
    """One call over Chat Completions; its message, as the program keeps it."""
    body = {"model": "m", "messages": messages, "tools": [TOOL], **more}
    async with posting(gateway, body) as response:
        assert response.status == 200, await response.text()
        return (await response.json())["choices"][0]["message"]


def respelled(message: Any) -> Any:
    """As programs keep it that write arguments anew and drop reasoning."""
    kept = {"role": "assistant", "content": message["content"]}
    if found := message.get("tool_calls"):
        kept["tool_calls"] = [
            {
                **one,
                "function": {
                    **one["function"],
                    "arguments": json.dumps(json.loads(one["function"]["arguments"])),
                },
            }
            for one in found
        ]
    return kept


async def work(gateway: Gateway, question: str) -> None:
    """Calls tools until there is none to call."""
    messages: list[Any] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": question},
    ]
    while True:
        message = await turn(gateway, messages)
        messages.append(respelled(message))
        if not message.get("tool_calls"):
            return
        for one in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": "five"})


def answers() -> list[Any]:
    return [
        calls("add", '{"a":   2}', reasoning="hm", text="let me see"),
        calls("add", '{"a":  3}'),
        says("it is five", reasoning="so"),
    ]


async def test_a_program_that_respells_continues_token_by_token() -> None:
    server = FakeVllm(splits=True, script=answers())
    events = await rollout(server, lambda gateway: work(gateway, "2+3?"))
    exact(server, events)
    links = [one.link for one in model_calls(events)]
    assert links == [rollout_pb2.CALL_LINK_CONTINUATION] * 3
    (sample,) = samples_of(model_calls(events))
    assert sample.trained == sum(len(one) for one in server.outputs)
    assert sample.tokens == server.prompts[-1] + server.outputs[-1]


async def test_conversations_side_by_side_are_samples_of_their_own() -> None:
    both = asyncio.Barrier(2)

    async def one(gateway: Gateway, question: str) -> None:
        await both.wait()
        await work(gateway, question)

    async def program(gateway: Gateway) -> None:
        await asyncio.gather(one(gateway, "a?"), one(gateway, "b?"))

    script = [says("a5"), says("b5")]
    server = FakeVllm(splits=True, script=script)
    events = await rollout(server, program)
    assert events[-1].HasField("completed")
    samples = samples_of(model_calls(events))
    assert len(samples) == 2
    assert sum(sample.trained for sample in samples) == sum(map(len, server.outputs))
    assert sorted(sample.tokens for sample in samples) == sorted(
        prompt + output for prompt, output in zip(server.prompts, server.outputs, strict=True)
    )


async def test_a_rewritten_history_is_a_fork_with_its_reason() -> None:
    async def program(gateway: Gateway) -> None:
        messages: list[Any] = [{"role": "user", "content": "2+3?"}]
        for content in ("go on", "and on"):
            messages.append(await turn(gateway, messages))
            messages.append({"role": "user", "content": content})
        del messages[1:3]  # the first answer and the question after it
        await turn(gateway, messages)

    server = FakeVllm(splits=True, script=[says("one"), says("two"), says("three")])
    events = await rollout(server, program)
    _, second, third = model_calls(events)
    assert second.link == rollout_pb2.CALL_LINK_CONTINUATION
    assert third.link == rollout_pb2.CALL_LINK_FORK
    assert third.HasField("fork")
    assert third.fork.reason
    samples = samples_of(model_calls(events))
    # Every sampled token is trained once, whatever became of the history.
    assert sum(sample.trained for sample in samples) == sum(map(len, server.outputs))
    assert [ids_of(one.output_token_ids) for one in captured(events)] == server.outputs


async def test_a_repeat_is_not_sampled_again() -> None:
    async def program(gateway: Gateway) -> None:
        messages: list[Any] = [{"role": "user", "content": "2+3?"}]
        message = await turn(gateway, messages)
        body = {"model": "m", "messages": messages, "tools": [TOOL]}
        retried = {"Idempotency-Key": "k", "x-stainless-retry-count": "1"}
        async with posting(gateway, body, headers=retried) as response:
            again = (await response.json())["choices"][0]["message"]
        assert again == message

    server = FakeVllm(splits=True, script=[says("five")])
    events = await rollout(server, program)
    assert len(model_calls(events)) == len(server.outputs) == 1
