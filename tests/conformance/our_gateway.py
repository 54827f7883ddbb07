"""Our own gateway as the gateway suite sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_conformance.gateway import CaughtCall, Script, WrittenAnswer
from gymmesh_responses import response_from_json
from tests.unit.agent.mesh import ask
from tests.unit.agent.streams import model_calls
from tests.unit.gateway.programs import serving

_LINKS = {
    rollout_pb2.CALL_LINK_CONTINUATION: "continuation",
    rollout_pb2.CALL_LINK_FORK: "fork",
    rollout_pb2.CALL_LINK_SIDE: "side",
    rollout_pb2.CALL_LINK_UNKNOWN: "unknown",
}


@dataclass
class _Rollout:
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
        return [_caught(call, places) for call in calls]


class OurGateway:
    """The gateway of an agent service in this process."""

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[_Rollout]:
        """Open one. The requests' headers name the program."""

        async def answer(request: model_pb2.CreateResponseRequest) -> Any:
            return response_from_json(_response(await script.next_answer()))

        rollout = _Rollout()
        async with serving(rollout.program, answer, repeat=True) as mesh:
            running = asyncio.create_task(mesh.run(ask(max_steps=50)))
            running.add_done_callback(lambda done: _pass_on(done, rollout))
            await rollout.begun.wait()
            try:
                yield rollout
            finally:
                rollout.over.set()
                await asyncio.gather(running, return_exceptions=True)


def _pass_on(done: asyncio.Task[list[rollout_pb2.RolloutEvent]], rollout: _Rollout) -> None:
    if (error := done.exception()) is not None:
        rollout.events.set_exception(error)
    else:
        rollout.events.set_result(done.result())


def _caught(call: rollout_pb2.ModelCallCompleted, places: dict[str, int]) -> CaughtCall:
    reason = ""
    if call.HasField("fork"):
        reason = tokens_pb2.ForkReason.Name(call.fork.reason).removeprefix("FORK_REASON_").lower()
    return CaughtCall(
        parent=places.get(call.parent_call_id),
        is_trained=call.trainable,
        link=_LINKS.get(call.link, "unspecified"),
        reason=reason,
        side=call.side_call,
        is_detached=call.detached,
    )


def _response(answer: WrittenAnswer) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.reasoning:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": [], "content": content})
    if answer.text or not answer.calls:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
            | {"content": [part]}
        )
    output += [
        {"type": "function_call", "id": f"fc_{place}", "call_id": f"call_{place}"}
        | {"name": call.name, "arguments": call.arguments, "status": "completed"}
        for place, call in enumerate(answer.calls)
    ]
    return {
        "id": "resp_1",
        "object": "response",
        "model": "scripted",
        "status": "completed",
        "output": output,
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }
