"""The descriptions of a mesh's services, for the description of a run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from google.protobuf import json_format

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_client.run_file import EnvironmentVersion, Versions
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_ASK_S: Final = 5.0
# Of one name, which usually has the same to say at each of its instances.
_ASKED: Final = 4
_KINDS: Final[dict[str, tuple[str, str, Any]]] = {
    "gymmesh.agent.v1.AgentService": ("agents", "GetAgent", agent_pb2.GetAgentRequest),
    "gymmesh.resource.v1.ResourceService": (
        "environments",
        "GetEnvironment",
        resource_pb2.GetEnvironmentRequest,
    ),
    "gymmesh.model.v1.ModelService": ("models", "GetModel", model_pb2.GetModelRequest),
    "gymmesh.sandbox.v1.SandboxService": (
        "sandboxes",
        "GetService",
        sandbox_pb2.GetServiceRequest,
    ),
}
# What differs between instances, or is for callers only.
_LEFT_OUT: Final = ("instance_id", "description", "images", "places", "running", "waiting")


async def describe_services(directory: PeerDirectory) -> dict[str, dict[str, list[Any]]]:
    """The answers of GetAgent, GetEnvironment, GetModel and GetService, in protobuf's JSON. They
    are sorted by kind (`agents`, `environments`, `models`, `sandboxes`) and by name. Equal answers
    are listed once.

    A service that does not answer within five seconds, or refuses, is listed with its `error`. If a
    name has many instances, only some of them are asked.
    """
    named = defaultdict[tuple[str, str], list[discovery_pb2.Instance]](list)
    for instance in directory.instances():
        if instance.service in _KINDS:
            named[instance.service, instance.name].append(instance)
    asked = [instance for instances in named.values() for instance in instances[:_ASKED]]
    answers = await asyncio.gather(*(_ask(directory, instance) for instance in asked))
    found: dict[str, dict[str, list[Any]]] = {}
    for instance, said in zip(asked, answers, strict=True):
        kind = _KINDS[instance.service][0]
        known = found.setdefault(kind, {}).setdefault(instance.name, [])
        if said not in known:
            known.append(said)
    return found


async def environment_versions(directory: PeerDirectory, names: Collection[str] | None) -> Versions:
    """The versions of these environments (None: of all) and of their verifiers, for the identity of
    a run.

    An environment that does not answer within five seconds, or is not in the directory, is missing.
    If an environment has many instances, only some of them are asked.
    """
    service = "gymmesh.resource.v1.ResourceService"
    asked = defaultdict[str, list[discovery_pb2.Instance]](list)
    for instance in directory.instances():
        name = instance.name
        if (
            instance.service == service
            and (names is None or name in names)
            and len(asked[name]) < _ASKED
        ):
            asked[name].append(instance)
    found = defaultdict[str, set[EnvironmentVersion]](set)

    async def ask(instance: discovery_pb2.Instance) -> None:
        with suppress(MeshError):
            about = await directory.peer(instance).GetEnvironment(
                resource_pb2.GetEnvironmentRequest(), timeout=_ASK_S
            )
            found[instance.name].add(EnvironmentVersion.of(about))

    await asyncio.gather(*(ask(instance) for instances in asked.values() for instance in instances))
    return {name: frozenset(versions) for name, versions in found.items()}


async def _ask(directory: PeerDirectory, instance: discovery_pb2.Instance) -> dict[str, Any]:
    _, method, request = _KINDS[instance.service]
    try:
        answer = await getattr(directory.peer(instance), method)(request(), timeout=_ASK_S)
    except MeshError as error:
        return {"error": error.message}
    said: dict[str, Any] = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    return {key: value for key, value in said.items() if key not in _LEFT_OUT}
