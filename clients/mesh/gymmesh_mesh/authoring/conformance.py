"""An environment through the conformance suite, before it is in a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_conformance.cases.matching import to_plain
from gymmesh_conformance.direct import PeerPath
from gymmesh_conformance.suites import ResourceTarget, TargetError, run_suite
from gymmesh_resource.checks import Finding
from gymmesh_resource.service import RESOURCE_SERVICE, VERIFY_SERVICE, ResourceService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_CHECK = "conformance"
_LIST_S = 10.0


async def conforms(
    service: ResourceService, directory: PeerDirectory, tasks: Sequence[rollout_pb2.Task]
) -> Finding:
    """Runs the suite for environments over one that is in the directory, directly.

    The profile is made of its first task alone, so cases that need to know a tool call or a right
    answer are left out; `python -m gymmesh_conformance` takes a profile that names them.
    """
    instance = discovery_pb2.Instance(
        id=service.instance_id, service=RESOURCE_SERVICE, name=service.name
    )
    resource = directory.peer(instance)
    try:
        task = tasks[0] if tasks else await _first_example(resource)
        if task is None:
            return Finding(_CHECK, False, "there is no task to try it with; ship example tasks")
        path = PeerPath({"resource": resource, "verify": directory.peer(instance, VERIFY_SERVICE)})
        profile = {"task": to_plain(task), "has_examples": not tasks}
        results = await run_suite(ResourceTarget(path, profile))
    except (MeshError, TargetError) as error:
        return Finding(_CHECK, False, str(error))
    for result in results:
        if result.outcome == "failed":
            return Finding(_CHECK, False, f"{result.name}: {'; '.join(result.problems)}")
    passed = sum(result.outcome == "passed" for result in results)
    left = len(results) - passed
    return Finding(_CHECK, True, f"{passed} cases passed, {left} need a profile or do not apply")


async def _first_example(resource: Any) -> rollout_pb2.Task | None:
    request = resource_pb2.ListTasksRequest(page_size=1)
    reply: resource_pb2.ListTasksResponse = await resource.ListTasks(request, timeout=_LIST_S)
    return reply.tasks[0] if reply.tasks else None
