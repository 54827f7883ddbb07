"""Our own gateway as the gateway suite sees it, before a small vLLM that answers by the script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_conformance.gateway import (
    CaughtCall,
    CaughtSample,
    SampledTokens,
    Script,
    WrittenAnswer,
)
from gymmesh_responses import unpack_ids, unpack_logprobs
from gymmesh_trainers.rollouts.samples import samples_of
from gymmesh_trainers.rollouts.token_tree import CallNode, token_tree
from tests.integration.test_exact_tokens import CAPTURE, mesh_of
from tests.support.vllm_server import FakeVllm, Reply, is_probe, logprob
from tests.unit.agent.mesh import ask
from tests.unit.agent.streams import model_calls
from tests.unit.gateway.programs import ProgramAgent

_LINKS = {
    rollout_pb2.CALL_LINK_CONTINUATION: "continuation",
    rollout_pb2.CALL_LINK_FORK: "fork",
    rollout_pb2.CALL_LINK_SIDE: "side",
    rollout_pb2.CALL_LINK_UNKNOWN: "unknown",
}


class _ScriptedVllm(FakeVllm):
    """Takes its answers from the suite, and says what it read and sampled.

    It writes tokens that the tokenizer would not choose, so that a history which is tokenised
    again is another one.
    """

    def __init__(self, script: Script) -> None:
        super().__init__(splits=True)
        self._suite = script

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        if is_probe(await request.json()):
            return await super()._chat(request)
        self.script.append(_reply(await self._suite.next_answer()))
        response = await super()._chat(request)
        prompt, output = self.prompts[-1], self.outputs[-1]
        logprobs = tuple(map(logprob, output))
        self._suite.sampled.append(SampledTokens(tuple(prompt), tuple(output), logprobs))
        return response


def _reply(answer: WrittenAnswer) -> Reply:
    calls = tuple((call.name, call.arguments) for call in answer.calls)
    return Reply(answer.text, answer.reasoning or None, calls)


@dataclass
class OurRollout:
    """A rollout whose program is the suite."""

    url: str = ""
    key: str = ""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    events: asyncio.Future[Sequence[rollout_pb2.RolloutEvent]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def program(self, gateway: Gateway) -> None:
        """Runs as the agent: until the suite has played its session."""
        self.url, self.key = gateway.url, gateway.key
        self.begun.set()
        await self.over.wait()

    async def finish(self) -> list[CaughtCall]:
        """The captured calls."""
        self.over.set()
        calls = model_calls(list(await self.events))
        # The order in which the model was asked, not in which it answered.
        calls.sort(key=lambda call: int(call.call_id.removeprefix("c")))
        places = {call.call_id: place for place, call in enumerate(calls)}
        nodes = {node.call.call_id: node for node in token_tree(calls)}
        return [_caught(call, places, nodes[call.call_id]) for call in calls]

    async def samples(self) -> list[CaughtSample]:
        """What the trainers' package makes of the rollout."""
        return [
            CaughtSample(tuple(one.tokens), tuple(bool(on) for on in one.mask), tuple(one.logprobs))
            for one in samples_of(model_calls(list(await self.events)))
        ]


class OurGateway:
    """The gateway of an agent service in this process; `target` is not used."""

    def __init__(self, target: str = "") -> None:
        self.target = target

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[OurRollout]:
        """Open one. The requests' headers name the program."""
        rollout = OurRollout()
        ProgramAgent.main = staticmethod(rollout.program)
        agent = AgentConfig(use="tests.unit.gateway.programs:ProgramAgent")
        async with mesh_of(_ScriptedVllm(script), agent=agent) as (mesh, _):
            running = asyncio.create_task(mesh.run(ask(capture=CAPTURE, max_steps=50)))
            running.add_done_callback(lambda done: _pass_on(done, rollout))
            await rollout.begun.wait()
            try:
                yield rollout
            finally:
                rollout.over.set()
                await asyncio.gather(running, return_exceptions=True)


def _pass_on(done: asyncio.Task[list[rollout_pb2.RolloutEvent]], rollout: OurRollout) -> None:
    if (error := done.exception()) is not None:
        rollout.events.set_exception(error)
    else:
        rollout.events.set_result(done.result())


def _caught(
    call: rollout_pb2.ModelCallCompleted, places: dict[str, int], node: CallNode
) -> CaughtCall:
    reason = ""
    if call.HasField("fork"):
        reason = tokens_pb2.ForkReason.Name(call.fork.reason).removeprefix("FORK_REASON_").lower()
    return CaughtCall(
        parent=places.get(call.parent_call_id),
        is_trained=call.trainable,
        link=_LINKS.get(call.link, "unspecified"),
        reason=reason,
        side=call.side_call,
        # A fork may be one of the model service, too, which then says so: where the tools changed.
        is_detached=call.detached or (call.HasField("fork") and call.tokens.HasField("fork")),
        tokens=SampledTokens(
            tuple(unpack_ids(node.tokens(0, node.begin))),
            tuple(unpack_ids(call.tokens.output_token_ids)),
            tuple(unpack_logprobs(call.tokens.logprobs)),
        ),
    )
