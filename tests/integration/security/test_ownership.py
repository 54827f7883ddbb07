"""What one identity made, another does not find: sessions, answers, conversations, streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import VERIFY_SERVICE, ResourceService
from gymmesh_responses import new_message
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.security import IdentityConfig, SecurityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving.service import Service

Reason = errors_pb2.ErrorReason
BOUND_S = 240.0
TASK = rollout_pb2.Task(task_id="t", environment="math", payload_json=b'{"expected_answer": "4"}')


class Two:
    """Ann and Bob, who may do the same, at one service."""

    def __init__(self, instance: discovery_pb2.Instance, ann: Any, bob: Any) -> None:
        self._instance = instance
        self._ann = ann
        self._bob = bob

    def ann(self, service: str | None = None) -> Any:
        return self._ann.peer(self._instance, service)

    def bob(self, service: str | None = None) -> Any:
        return self._bob.peer(self._instance, service)


@asynccontextmanager
async def served(folder: Path, service: Service, transport: TransportName) -> AsyncIterator[Two]:
    identities, directories = {}, []
    for name in ("ann", "bob"):
        path = folder / name
        path.write_text(f"the-token-of-{name}")
        identities[name] = IdentityConfig(token_file=str(path), may=("collect", "serve"))
        shown = Credentials(SecurityConfig(token_file=str(path)))
        directories.append(PeerDirectory(transport=transport, credentials=shown))
    options = ServeOptions(drain_s=1.0, security=SecurityConfig(identities=identities))
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(serving(service, options))
        for one in directories:
            stack.push_async_callback(one.close)
        yield Two(up.instance, *directories)


async def reason(call: Any) -> str:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value.reason_name


@pytest.fixture(params=["auto", "plain"])
def transport(request: pytest.FixtureRequest) -> TransportName:
    param: TransportName = request.param
    return param


async def test_sessions(tmp_path: Path, transport: TransportName) -> None:
    service = ResourceService(EnvironmentConfig(use="calendar"), "math", "math-0")
    create = resource_pb2.CreateSessionRequest(
        task=rollout_pb2.Task(task_id="t", environment="math", payload_json=_calendar()),
        request_id="r-1",
    )
    async with served(tmp_path, service, transport) as two:
        ann, bob = two.ann(), two.bob()
        hers = await ann.CreateSession(create, timeout=BOUND_S)
        assert (await ann.CreateSession(create, timeout=BOUND_S)).session_id == hers.session_id
        his = await bob.CreateSession(create, timeout=BOUND_S)  # the same ids, chosen by chance
        assert his.session_id != hers.session_id

        call = resource_pb2.CallToolRequest(
            session_id=hers.session_id, name="none", arguments=b"{}", call_id="c", request_id="q"
        )
        none = resource_pb2.CallToolRequest()
        none.CopyFrom(call)
        none.session_id = "0" * 32
        guessed, unknown = [
            await refusal(bob.CallTool(one, timeout=BOUND_S)) for one in (call, none)
        ]
        assert guessed.reason_name == unknown.reason_name == "SESSION_NOT_FOUND"
        assert guessed.message.replace(hers.session_id, none.session_id) == unknown.message
        close = resource_pb2.CloseSessionRequest(session_id=hers.session_id)
        await bob.CloseSession(close, timeout=BOUND_S)  # as for one that is closed already
        verify = verify_pb2.VerifyRequest(session_id=hers.session_id, task=create.task)
        assert await reason(two.bob(VERIFY_SERVICE).Verify(verify, timeout=BOUND_S))

        answer = await ann.CallTool(call, timeout=BOUND_S)  # it is open still
        assert answer.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
        await ann.CloseSession(close, timeout=BOUND_S)
        assert await reason(ann.CallTool(call, timeout=BOUND_S)) == "SESSION_NOT_FOUND"


async def test_sessions_of_each(tmp_path: Path, transport: TransportName) -> None:
    config = EnvironmentConfig(use="calendar", session_limit_each=1)
    service = ResourceService(config, "math", "math-0")
    task = rollout_pb2.Task(task_id="t", environment="math", payload_json=_calendar())

    def create(number: int) -> resource_pb2.CreateSessionRequest:
        return resource_pb2.CreateSessionRequest(task=task, request_id=f"r-{number}")

    async with served(tmp_path, service, transport) as two:
        ann, bob = two.ann(), two.bob()
        hers = await ann.CreateSession(create(1), timeout=BOUND_S)
        assert await reason(ann.CreateSession(create(2), timeout=BOUND_S)) == "SESSION_LIMIT"
        await bob.CreateSession(create(2), timeout=BOUND_S)
        close = resource_pb2.CloseSessionRequest(session_id=hers.session_id)
        await ann.CloseSession(close, timeout=BOUND_S)
        await ann.CreateSession(create(3), timeout=BOUND_S)


async def refusal(call: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value


def _calendar() -> bytes:
    return json.dumps({"exp_cal_state": {}}).encode()


async def test_answers_and_conversations(tmp_path: Path, transport: TransportName) -> None:
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(
        json.dumps({"match": "*", "answers": [{"text": f"answer {n}"} for n in range(9)]}) + "\n"
    )
    service = ModelService(ModelConfig(backend="replay", path=str(recorded)), "policy", "policy-0")

    def request(words: str, **fields: Any) -> model_pb2.CreateResponseRequest:
        params = responses_pb2.ResponseParams(input=[new_message("user", words)])
        return model_pb2.CreateResponseRequest(params=params, rollout_id="r", **fields)

    async with served(tmp_path, service, transport) as two:
        ann, bob = two.ann(), two.bob()
        started = model_pb2.ConversationRef(id="r/1")
        first = request("hers", request_id="q-1", call_id="c0", conversation=started)
        hers = await ann.CreateResponse(first, timeout=BOUND_S)
        again = await ann.CreateResponse(first, timeout=BOUND_S)
        assert again.from_cache
        his = await bob.CreateResponse(first, timeout=BOUND_S)  # the very same request
        assert not his.from_cache
        other = request("his own", request_id="q-1", call_id="c0")
        assert await reason(ann.CreateResponse(other, timeout=BOUND_S)) == "REQUEST_ID_REUSED"

        goes_on = model_pb2.ConversationRef(
            id="r/1", parent_call_id="c0", parent_token=hers.conversation_token
        )
        second = request("and on", request_id="q-2", call_id="c1", conversation=goes_on)
        assert await reason(bob.CreateResponse(second, timeout=BOUND_S)) == "CONVERSATION_UNKNOWN"
        await ann.CreateResponse(second, timeout=BOUND_S)


async def test_collect_streams(tmp_path: Path, transport: TransportName) -> None:
    service = AgentService(AgentConfig(), "tool_loop", "agent-0")
    goes_on = asyncio.Event()

    async def asked(rollout_id: str) -> AsyncIterator[agent_pb2.CollectRequest]:
        hello = agent_pb2.CollectHello(stream_id="the-same-stream", credit=10)
        yield agent_pb2.CollectRequest(hello=hello)
        await goes_on.wait()
        request = agent_pb2.RunRolloutRequest(
            task=TASK, rollout_id=rollout_id, attempt=1, run_id="run"
        )
        starts = [agent_pb2.CollectStart(request=request)]
        yield agent_pb2.CollectRequest(starts=agent_pb2.CollectStarts(starts=starts))
        await asyncio.Event().wait()

    async with served(tmp_path, service, transport) as two, asyncio.timeout(BOUND_S):
        hers = two.ann().Collect(asked("r-1"), timeout=BOUND_S)
        assert (await anext(hers)).HasField("welcome")
        his = two.bob().Collect(asked("r-2"), timeout=BOUND_S)
        assert (await anext(his)).HasField("welcome")
        # Another connection of hers would have taken her stream over; his did not.
        goes_on.set()
        for stream in (hers, his):
            while not (await anext(stream)).HasField("events"):
                pass
            await stream.aclose()
