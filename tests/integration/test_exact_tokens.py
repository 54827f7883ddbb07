"""Rollouts whose tokens are captured: exact from call to call, through evictions and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.model import metrics
from gymmesh_model import ModelConfig, ModelService
from gymmesh_responses import new_message
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from tests.support.dialogue import ids_of
from tests.support.vllm_server import FakeVllm, Reply, calls, decode, letters, says
from tests.unit.agent.mesh import Mesh, ask, running
from tests.unit.agent.servicers import TinyEnvironment, ok

CAPTURE = tokens_pb2.CaptureOptions(token_ids=True, logprobs=True)
TURNS = [
    resource_pb2.NextTurnResponse(items=[new_message("user", "and?")]),
    resource_pb2.NextTurnResponse(done=True),
]


class Replicas:
    """Model services behind one name; `current` answers. Their requests and answers are kept."""

    def __init__(self, *services: ModelService) -> None:
        self.services = services
        self.current = 0
        self.requests: list[model_pb2.CreateResponseRequest] = []
        self.before: Any = None
        self.after_last: Any = None

    async def GetModel(
        self, request: model_pb2.GetModelRequest, context: CallContext
    ) -> model_pb2.GetModelResponse:
        return await self.services[self.current].GetModel(request, context)

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        if self.before is not None:
            await self.before(len(self.requests))
        self.requests.append(request)
        reply = await self.services[self.current].CreateResponse(request, context)
        if self.after_last is not None and len(self.requests) == 3:
            await self.after_last()
        return reply

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: CallContext
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        if self.before is not None:
            await self.before(len(self.requests))
        self.requests.append(request.call)
        async for frame in self.services[self.current].StreamResponse(request, context):
            yield frame


class Retokenising(Replicas):
    """Says of its second answer's prompt that it was tokenised anew, and declares nothing."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        reply = await super().CreateResponse(request, context)
        if len(self.requests) < 2:
            return reply
        changed = model_pb2.CreateResponseResponse()
        changed.CopyFrom(reply)
        changed.tokens.prompt_prefix_tokens = 0
        changed.tokens.prompt_token_ids = PROMPT
        return changed


PROMPT = b"\1\0\0\0" + b"\7\0\0\0" * 200


async def lookup(arguments: bytes) -> resource_pb2.CallToolResponse:
    return ok("five")


@asynccontextmanager
async def mesh_of(
    server: FakeVllm,
    path: str = "direct",
    kind: type[Replicas] = Replicas,
    replicas: int = 1,
    agent: AgentConfig | None = None,
    **config: Any,
) -> AsyncIterator[tuple[Mesh, Replicas]]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        services = []
        for number in range(replicas):
            given = ModelConfig(backend="vllm", url=server.url, model="toy", **config)
            service = ModelService(given, "policy", f"policy-{number}")
            await service.open(PeerDirectory())
            stack.push_async_callback(service.close)
            services.append(service)
        models: Any = kind(*services)
        environment = TinyEnvironment(tools={"add": lookup})
        mesh = await stack.enter_async_context(
            running(path, environment, {"policy": models}, agent or AgentConfig())
        )
        yield mesh, models


def answers() -> list[Reply]:
    return [
        calls("add", '{"a":   2}', text="let me see"),
        calls("add", '{"a":  3}'),
        says("it is five"),
    ]


def captured(events: Sequence[rollout_pb2.RolloutEvent]) -> list[tokens_pb2.TokenCapture]:
    return [
        event.model_call_completed.tokens
        for event in events
        if event.HasField("model_call_completed")
    ]


def whole(captures: Sequence[tokens_pb2.TokenCapture]) -> list[list[int]]:
    """The prompt of each call, put together from the chain."""
    prompts: list[list[int]] = []
    before: list[int] = []
    for capture in captures:
        prompt = before[: capture.prompt_prefix_tokens] + ids_of(capture.prompt_token_ids)
        prompts.append(prompt)
        before = prompt + ids_of(capture.output_token_ids)
    return prompts


def exact(server: FakeVllm, events: Sequence[rollout_pb2.RolloutEvent]) -> None:
    """Assert that the rollout's tokens are the server's, each call going on with the last."""
    captures = captured(events)
    assert whole(captures) == server.prompts
    assert [ids_of(one.output_token_ids) for one in captures] == server.outputs
    assert not any(one.HasField("fork") for one in captures)
    expected = [0] + [
        len(prompt) + len(output)
        for prompt, output in zip(server.prompts, server.outputs, strict=True)
    ]
    assert [one.prompt_prefix_tokens for one in captures] == expected[:-1]
    assert events[-1].WhichOneof("event") == "completed"


@pytest.mark.parametrize("path", ["direct", "grpc"])
@pytest.mark.parametrize("splits", [False, True])
async def test_a_rollout_is_exact(path: str, splits: bool) -> None:
    server = FakeVllm(splits=splits, script=answers())
    async with mesh_of(server, path) as (mesh, models):
        events = await mesh.run(ask(capture=CAPTURE))
    exact(server, events)
    # Only what is new travels: the tool's output, and no more.
    assert [len(one.params.input) for one in models.requests] == [1, 1, 1]
    assert [one.conversation.parent_call_id for one in models.requests] == ["", "c1", "c2"]
    assert [bool(one.conversation.parent_token) for one in models.requests] == [False, True, True]
    assert '{"a":   2}' in decode(server.prompts[-1])


@pytest.mark.parametrize("splits", [False, True])
async def test_evicted_in_the_middle_there_is_no_fork(splits: bool) -> None:
    server = FakeVllm(splits=splits, script=answers())
    async with mesh_of(server) as (mesh, models):

        async def evict(call: int) -> None:
            if call == 1:
                models.services[0]._conversations.drop("r1", "r1/1")

        models.before = evict
        events = await mesh.run(ask(capture=CAPTURE))
    exact(server, events)
    assert [len(one.params.input) for one in models.requests] == [1, 1, 4, 1]
    assert models.requests[2].conversation.prefix_tokens.item_ends[-1] > 0


async def test_a_service_that_holds_nothing_is_sent_the_whole_each_time() -> None:
    server = FakeVllm(splits=True, script=[*answers()[:2], *answers()])
    async with mesh_of(server, max_conversations=1, max_conversation_bytes=1) as (mesh, models):
        events = await mesh.run(ask(capture=CAPTURE))
    exact(server, events)
    # Twice it was tried in vain; then no more.
    assert [bool(one.conversation.parent_call_id) for one in models.requests] == [
        False, True, False, True, False, False, False,
    ]  # fmt: skip


async def test_another_conversation_under_the_same_name_is_not_gone_on_with() -> None:
    """What the service holds is told by its token, and the whole sent when it is another."""
    server = FakeVllm(splits=True, script=[answers()[0], says("else"), *answers()[1:]])
    async with mesh_of(server) as (mesh, models):

        async def other(call: int) -> None:
            if call != 1:
                return
            stray = model_pb2.CreateResponseRequest()
            stray.CopyFrom(models.requests[0])
            stray.params.input[0].message.text = "something else"
            stray.request_id = "stray"
            await models.services[0].CreateResponse(stray, CallContext("CreateResponse"))
            del server.prompts[1], server.outputs[1]

        models.before = other
        events = await mesh.run(ask(capture=CAPTURE))
    exact(server, events)
    assert [len(one.params.input) for one in models.requests] == [1, 1, 4, 1]


@pytest.mark.parametrize("splits", [False, True])
async def test_a_replica_killed_in_the_middle_there_is_no_fork(splits: bool) -> None:
    server = FakeVllm(splits=splits, script=answers())
    async with mesh_of(server, replicas=2) as (mesh, models):

        async def kill(call: int) -> None:
            if call == 1:
                await models.services[0].close()
                models.current = 1

        models.before = kill
        events = await mesh.run(ask(capture=CAPTURE))
    exact(server, events)


async def test_a_retokenised_prompt_fails_the_rollout() -> None:
    server = FakeVllm(script=answers())
    counter = metrics.TOKEN_DIVERGENCES.labels("policy")
    before = counter.value
    async with mesh_of(server, kind=Retokenising) as (mesh, _):
        events = await mesh.run(ask(capture=CAPTURE))
    failure = events[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_MODEL
    assert not failure.retry_safe
    assert "from token 1 on" in failure.status.message
    assert failure.call_id == "c2"
    assert counter.value == before + 1
    # What was captured is there for who wants to know.
    assert captured(events)[1].prompt_token_ids == PROMPT


async def test_a_retokenised_prompt_may_be_allowed() -> None:
    server = FakeVllm(script=answers())
    counter = metrics.TOKEN_DIVERGENCES.labels("policy")
    before = counter.value
    async with mesh_of(server, kind=Retokenising) as (mesh, _):
        events = await mesh.run(ask(capture=CAPTURE, allow_token_divergence=True))
    assert events[-1].HasField("completed")
    assert counter.value == before + 2  # the second and the third call


@pytest.mark.parametrize("how", ["request", "configuration"])
async def test_forks_are_counted_by_reason(how: str) -> None:
    server = FakeVllm(template="drops", script=[calls("add", "{}", reasoning="hm"), says("five")])
    counter = metrics.TOKEN_FORKS.labels("policy", "TEMPLATE_REWRITES")
    before = counter.value
    agent = AgentConfig(append_only="auto" if how == "request" else False)
    off = {"append_only": False} if how == "request" else {}
    async with mesh_of(server, agent=agent) as (mesh, _):
        events = await mesh.run(ask(capture=CAPTURE, **off))
    assert events[-1].HasField("completed")
    fork = captured(events)[1].fork
    assert fork.reason == tokens_pb2.FORK_REASON_TEMPLATE_REWRITES
    assert counter.value == before + 1
    assert whole(captured(events)) == server.prompts


@pytest.mark.parametrize("template", ["keeps", "drops", "drops_old", "late_end"])
@pytest.mark.parametrize("evicts", [False, True])
async def test_append_only_a_template_that_rewrites_gives_no_fork(
    template: Any, evicts: bool
) -> None:
    """By default where tokens are captured, also where the service held the conversation no more
    and the whole was sent again.
    """
    script = [calls("add", '{"a":   2}', text="so", reasoning="hm"), says("five", reasoning="ok")]
    server = FakeVllm(template=template, splits=True, script=[*script, says("done")])
    async with mesh_of(server) as (mesh, models):
        mesh.environment.turns = list(TURNS)

        async def evict(call: int) -> None:
            if evicts and call == 1:
                models.services[0]._conversations.drop("r1", "r1/1")

        models.before = evict
        events = await mesh.run(ask(capture=CAPTURE))
    exact(server, events)
    said = decode(server.prompts[-1])
    assert '<think>hm</think>so<tool_call>{"name": "add", "arguments": {"a":   2}}' in said


async def test_plain_evaluation_is_not_append_only() -> None:
    """Without captured tokens the template alone decides, as ever."""
    script = [calls("add", "{}", reasoning="hm"), says("five")]
    server = FakeVllm(template="drops", script=script)
    async with mesh_of(server) as (mesh, models):
        await mesh.run(ask())
    assert not any(one.append_only for one in models.requests)
    assert "hm" not in decode(server.prompts[-1])


async def test_a_service_that_keeps_nothing_gives_forks() -> None:
    """It cannot know the tokens before, so the agent declares what it finds."""
    server = FakeVllm(splits=True, script=answers())
    async with mesh_of(server, max_conversations=0) as (mesh, models):
        events = await mesh.run(ask(capture=CAPTURE))
    assert events[-1].HasField("completed")
    forks = [one.fork for one in captured(events) if one.HasField("fork")]
    assert [one.reason for one in forks] == [tokens_pb2.FORK_REASON_BACKEND] * 2
    assert whole(captured(events)) == server.prompts
    for number, fork in enumerate(forks):
        known = server.prompts[number] + server.outputs[number]
        common, prompt = fork.common_tokens, server.prompts[number + 1]
        assert len(server.prompts[number]) <= common < len(known)
        assert prompt[:common] == known[:common]
        assert prompt[common] != known[common]
    assert not any(one.HasField("conversation") for one in models.requests)


@pytest.mark.parametrize("path", ["direct", "grpc"])
async def test_deltas_and_exact_tokens_go_together(path: str) -> None:
    server = FakeVllm(splits=True, script=answers())
    async with mesh_of(server, path) as (mesh, models):

        async def evict(call: int) -> None:
            if call == 1:
                models.services[0]._conversations.drop("r1", "r1/1")

        models.before = evict
        events = await mesh.run(ask(capture=CAPTURE, deltas=True))
    exact(server, events)
    deltas = [event.output_delta for event in events if event.HasField("output_delta")]
    assert b"".join(one.text for one in deltas if one.call_id == "c3") == b"it is five"


async def test_an_agent_may_be_configured_to_capture() -> None:
    server = FakeVllm(script=answers())
    async with mesh_of(server, agent=AgentConfig(capture_tokens=True)) as (mesh, _):
        captured_by_default = await mesh.run(ask())
        server.script = answers()
        other = ask(capture=tokens_pb2.CaptureOptions())
        other.rollout_id = "r2"
        not_asked_for = await mesh.run(other)
    assert all(one.output_token_ids and one.logprobs for one in captured(captured_by_default))
    assert not any(one.ByteSize() for one in captured(not_asked_for))


@pytest.mark.parametrize(("limit", "stale"), [(1, True), (2, False)])
async def test_weights_swapped_after_the_last_call_count_too(limit: int, stale: bool) -> None:
    server = FakeVllm(script=answers())

    async with mesh_of(server) as (mesh, models):

        async def swap(version: int) -> None:
            request = model_pb2.SetWeightsVersionRequest(version=version)
            context = CallContext("SetWeightsVersion")
            await models.services[0].SetWeightsVersion(request, context)

        await swap(3)
        models.after_last = lambda: swap(5)
        events = await mesh.run(ask(capture=CAPTURE, max_staleness=limit))
    if stale:
        failure = events[-1].failed.failure
        assert failure.boundary == rollout_pb2.BOUNDARY_BUDGET
        assert "weights version 3" in failure.status.message
    else:
        assert events[-1].HasField("completed")


async def test_without_capture_only_long_conversations_are_kept() -> None:
    server = FakeVllm(script=[*[calls("add", "{}")] * 5, says("done")])
    async with mesh_of(server) as (mesh, models):
        events = await mesh.run(ask())
    assert not any(one.ByteSize() for one in captured(events))
    assert [len(one.params.input) for one in models.requests] == [1, 3, 5, 7, 1, 1]
    chats = [body for path, body in server.requests if path == "chat"]
    assert [len(body["messages"]) for body in chats] == [1, 3, 5, 7, 9, 11]


async def test_many_rollouts_side_by_side_are_exact() -> None:
    server = FakeVllm(splits=True, default=says("it is five"))
    async with mesh_of(server, max_conversations=3) as (mesh, _):
        requests = []
        for number in range(12):
            request = ask(capture=CAPTURE)
            request.rollout_id = f"r{number}"
            requests.append(request)
        runs = await asyncio.gather(*(mesh.run(request) for request in requests))
    assert all(events[-1].HasField("completed") for events in runs)
    assert errors_pb2.ERROR_REASON_TOKENS_DIVERGED
    assert not any(one.HasField("fork") for events in runs for one in captured(events))
    assert letters("it") == ids_of(captured(runs[0])[0].output_token_ids)[:2]
