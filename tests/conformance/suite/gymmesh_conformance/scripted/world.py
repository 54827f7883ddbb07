"""The scripted services: plain classes with the RPCs as methods, shared by all cases.

A case is known by its id: in the task's payload to the environments, by the marker in the prompt
to the models.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf import json_format

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_conformance.errors import CallError, make_error
from gymmesh_conformance.scripted.script import Script
from gymmesh_conformance.services import full_name

VERSION: Final = "1.0"
_MARKER: Final = re.compile(rb"\[case ([0-9a-z-]+)\]")


class World:
    """The scripts by case id."""

    def __init__(self) -> None:
        self._scripts: dict[str, Script] = {}

    def add(self, case_id: str, world: Mapping[str, Any]) -> Script:
        """Makes a case's script known."""
        script = self._scripts[case_id] = Script(case_id, world)
        return script

    def of_task(self, task: rollout_pb2.Task) -> Script:
        """The script that a task's payload names. Raises TASK_INVALID."""
        try:
            return self._scripts[json.loads(task.payload_json)["case"]]
        except (ValueError, LookupError, TypeError):
            raise make_error(
                "TASK_INVALID", grpc.StatusCode.INVALID_ARGUMENT, "no such case", field="case"
            ) from None

    def of_prompt(self, params: responses_pb2.ResponseParams) -> Script:
        """The script whose marker is in the prompt. Raises FIELD_INVALID."""
        found = _MARKER.search(params.SerializeToString())
        script = self._scripts.get(found[1].decode()) if found else None
        if script is None:
            raise make_error(
                "FIELD_INVALID",
                grpc.StatusCode.INVALID_ARGUMENT,
                "the task's input is not in the prompt",
                field="params.input",
            )
        return script


class ScriptedModel:
    """A model that answers by the script."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    async def GetModel(self, request: model_pb2.GetModelRequest, _: Any) -> Any:
        """Says that it streams, and no more."""
        return model_pb2.GetModelResponse(
            name=self._name,
            backend="replay",
            endpoint_model="scripted",
            capabilities=model_pb2.ModelCapabilities(streaming=True, tools=True),
            contract_version=VERSION,
        )

    async def CreateResponse(self, request: model_pb2.CreateResponseRequest, context: Any) -> Any:
        """The script's next answer."""
        script = self._world.of_prompt(request.params)
        _note(script, context)
        return await script.model(self._name, request)

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: Any
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        """The script's next answer, its texts as one delta each."""
        answer = await self.CreateResponse(request.call, context)
        for index, item in enumerate(answer.response.output):
            for part in item.message.parts.parts:
                text = part.output_text.text.encode()
                delta = model_pb2.ResponseDelta(output_index=index, text=text)
                yield model_pb2.StreamResponseResponse(delta=delta)
        yield model_pb2.StreamResponseResponse(completed=answer)


@dataclass(frozen=True)
class Kind:
    """What one of the scripted environments says that it is."""

    name: str
    multi_turn: bool = False
    retry_safe: bool = True
    judges_groups: bool = False
    reward_rule: resource_pb2.RewardRule.ValueType = resource_pb2.REWARD_RULE_VERIFIER_ONLY


KINDS: Final = (
    Kind("conformance"),
    Kind("conformance-turns", multi_turn=True),
    Kind("conformance-sum", multi_turn=True, reward_rule=resource_pb2.REWARD_RULE_SUM),
    Kind("conformance-once", retry_safe=False),
    Kind("conformance-groups", judges_groups=True),
)


@dataclass
class _Session:
    script: Script
    request_id: str
    answer: resource_pb2.CreateSessionResponse


class ScriptedEnvironment:
    """An environment and its verifier that answer by the script."""

    def __init__(self, world: World, kind: Kind) -> None:
        self._world = world
        self._kind = kind
        self._name = kind.name
        self._multi_turn = kind.multi_turn
        self._sessions: dict[str, _Session] = {}
        self._known: dict[str, Script] = {}

    async def GetEnvironment(self, request: resource_pb2.GetEnvironmentRequest, _: Any) -> Any:
        """Says what it is."""
        return resource_pb2.GetEnvironmentResponse(
            name=self._name,
            version="7",
            multi_turn=self._multi_turn,
            verify_needs_session=True,
            retry_safe=self._kind.retry_safe,
            judges_groups=self._kind.judges_groups,
            reward_rule=self._kind.reward_rule,
            instance_id=f"{self._name}-0",
            contract_version=VERSION,
        )

    async def ListTasks(self, request: resource_pb2.ListTasksRequest, _: Any) -> Any:
        """Has none."""
        return resource_pb2.ListTasksResponse()

    async def ListTools(self, request: resource_pb2.ListToolsRequest, _: Any) -> Any:
        """Has none but those of the sessions."""
        return resource_pb2.ListToolsResponse()

    async def CreateSession(self, request: resource_pb2.CreateSessionRequest, context: Any) -> Any:
        """Opens a session, or does what the script says instead."""
        script = self._world.of_task(request.task)
        _note(script, context)
        self._require(script, request.request_id, "CreateSession.request_id")
        for session in self._sessions.values():
            if session.request_id == request.request_id:
                return session.answer
        answer = await script.session(request)
        answer.session_id = f"s-{secrets.token_hex(8)}"
        answer.instance_id = f"{self._name}-0"
        answer.environment_version = "7"
        answer.multi_turn = self._multi_turn
        answer.seed = request.seed if request.HasField("seed") else 11
        self._sessions[answer.session_id] = _Session(script, request.request_id, answer)
        self._known[answer.session_id] = script
        script.counts["opened"] += 1
        return script.give(answer)

    async def CallTool(self, request: resource_pb2.CallToolRequest, context: Any) -> Any:
        """The script's answer to the call."""
        script = self._open(request.session_id, "CallTool")
        _note(script, context)
        self._require(script, request.request_id, "CallTool.request_id")
        return await script.tool(request)

    async def NextTurn(self, request: resource_pb2.NextTurnRequest, _: Any) -> Any:
        """The script's next turn."""
        if not self._multi_turn:
            script = self._known.get(request.session_id)
            if script is not None:
                script.violations.append("NextTurn was called though multi_turn is false")
            raise make_error("NOT_OFFERED", grpc.StatusCode.UNIMPLEMENTED, "takes no turns")
        script = self._open(request.session_id, "NextTurn")
        self._require(script, request.request_id, "NextTurn.request_id")
        return await script.turn(request)

    async def PlayEpisode(self, request: resource_pb2.PlayEpisodeRequest, _: Any) -> Any:
        """Offered by none of the kinds."""
        script = self._known.get(request.session_id)
        if script is not None:
            script.violations.append("PlayEpisode was called though plays is false")
        raise make_error("NOT_OFFERED", grpc.StatusCode.UNIMPLEMENTED, "plays no episodes")

    async def CloseSession(self, request: resource_pb2.CloseSessionRequest, _: Any) -> Any:
        """Closes the session."""
        session = self._sessions.pop(request.session_id, None)
        if session is not None:
            session.script.counts["closed"] += 1
        return resource_pb2.CloseSessionResponse()

    async def Verify(self, request: verify_pb2.VerifyRequest, context: Any) -> Any:
        """The script's verdict."""
        script = self._open(request.session_id, "Verify")
        _note(script, context)
        if request.stop_reason == rollout_pb2.STOP_REASON_UNSPECIFIED:
            script.violations.append("Verify was called without a stop reason")
        if self._world.of_task(request.task) is not script:
            script.violations.append("Verify was called with another task")
        return await script.verify(request)

    async def VerifyGroup(self, request: verify_pb2.VerifyGroupRequest, _: Any) -> Any:
        """The payload's `verdicts`, else the first member wins; `no-groups` is not judged so."""
        if request.task.task_id == "no-groups":
            raise make_error("NOT_OFFERED", grpc.StatusCode.UNIMPLEMENTED, "judges no groups")
        scripted = json.loads(request.task.payload_json or b"{}").get("verdicts")
        if scripted is not None:
            return json_format.ParseDict({"verdicts": scripted}, verify_pb2.VerifyGroupResponse())
        verdicts = [
            verify_pb2.GroupVerdict(
                rollout_id=member.rollout_id,
                verification=rollout_pb2.Verification(
                    status=rollout_pb2.VERIFICATION_STATUS_VERIFIED,
                    reward=float(place == 0),
                    verifier="scripted",
                ),
            )
            for place, member in enumerate(request.members)
        ]
        return verify_pb2.VerifyGroupResponse(verdicts=verdicts)

    def _open(self, session_id: str, method: str) -> Script:
        session = self._sessions.get(session_id)
        if session is not None:
            return session.script
        script = self._known.get(session_id)
        if script is not None:
            script.violations.append(f"{method} was called after CloseSession")
        raise _no_session(session_id)

    def _require(self, script: Script, value: str, name: str) -> None:
        if not value:
            script.violations.append(f"{name} is required and was not set")


def _note(script: Script, context: Any) -> None:
    """Notes what a call came with: a credential, and the time that remains."""
    metadata: Any = getattr(context, "invocation_metadata", tuple)() or ()
    script.credentials += [str(value) for key, value in metadata if key == "authorization"]
    remaining = context.time_remaining()
    script.longest_s = max(script.longest_s, math.inf if remaining is None else remaining)


def _no_session(session_id: str) -> CallError:
    return make_error(
        "SESSION_NOT_FOUND", grpc.StatusCode.NOT_FOUND, "no such session", session_id=session_id
    )


class ScriptedRegistry:
    """A registry of the instances that it was given; takes registrations and forgets them."""

    def __init__(self, instances: list[discovery_pb2.Instance]) -> None:
        self._instances = instances

    def _matching(self, service: str, name: str) -> list[discovery_pb2.Instance]:
        found = [
            one
            for one in self._instances
            if service in ("", one.service) and name in ("", one.name)
        ]
        return sorted(found, key=lambda one: one.id)

    async def ListInstances(self, request: discovery_pb2.ListInstancesRequest, _: Any) -> Any:
        """All at once."""
        found = self._matching(request.service, request.name)
        return discovery_pb2.ListInstancesResponse(instances=found, version=1)

    async def WatchInstances(
        self, request: discovery_pb2.WatchInstancesRequest, _: Any
    ) -> AsyncIterator[discovery_pb2.WatchInstancesResponse]:
        """The snapshot; then nothing changes until the watcher goes."""
        found = self._matching(request.service, request.name)
        snapshot = discovery_pb2.InstanceSnapshot(instances=found)
        yield discovery_pb2.WatchInstancesResponse(version=1, snapshot=snapshot)
        await asyncio.sleep(3600)

    async def Register(self, request: discovery_pb2.RegisterRequest, _: Any) -> Any:
        """A lease for anyone."""
        return discovery_pb2.RegisterResponse(lease_id=secrets.token_hex(8), lease_s=3600)

    async def Renew(self, request: discovery_pb2.RenewRequest, _: Any) -> Any:
        """Always extended."""
        return discovery_pb2.RenewResponse(lease_s=3600)

    async def Deregister(self, request: discovery_pb2.DeregisterRequest, _: Any) -> Any:
        """Always a success."""
        return discovery_pb2.DeregisterResponse()


@dataclass(frozen=True)
class Room:
    """A scripted service that an agent can find: its name and servicers by full service name."""

    name: str
    service: str  # full name of the main service
    servicers: Mapping[str, object]

    def instance(self, address: str) -> discovery_pb2.Instance:
        """How the registry lists it."""
        return discovery_pb2.Instance(
            id=f"{self.name}-0",
            service=self.service,
            name=self.name,
            address=address,
            contract_version=VERSION,
            health=discovery_pb2.HEALTH_SERVING,
        )


def rooms(world: World, roles: list[str]) -> list[Room]:
    """All scripted services: a model for each role and one more, and the environments."""
    found = []
    for name in (*roles, "conformance-model-b"):
        model = ScriptedModel(world, name)
        found.append(Room(name, full_name("model"), {full_name("model"): model}))
    for kind in KINDS:
        one = ScriptedEnvironment(world, kind)
        servicers = {full_name("resource"): one, full_name("verify"): one}
        found.append(Room(kind.name, full_name("resource"), servicers))
    return found
