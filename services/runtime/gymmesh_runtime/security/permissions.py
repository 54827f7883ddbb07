"""Which permission each method takes, and the decision. Pure.

Exchange, the mux, takes only that its caller is known: each call on it is decided by itself. Health
is open to all. What is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.config import Permission
from gymmesh_runtime.security.identity import Identity

_METHODS: Final[dict[str, dict[Permission, str]]] = {
    "gymmesh.agent.v1.AgentService": {
        "collect": "RunRollout Collect JudgeGroup",
        "observe": "GetAgent",
    },
    "gymmesh.run.v1.RunService": {
        "collect": "StreamGroups",
        "control": "ControlRun",
        "observe": "ListRuns GetRun",
    },
    "gymmesh.model.v1.ModelService": {
        "serve": "CreateResponse StreamResponse AbortResponse",
        "control": "SetWeightsVersion",
        "observe": "GetModel",
    },
    "gymmesh.resource.v1.ResourceService": {
        # The example tasks of an environment come with their answers.
        "serve": "CreateSession CallTool NextTurn CloseSession ListTasks",
        "observe": "GetEnvironment ListTools",
    },
    "gymmesh.verify.v1.VerifyService": {"serve": "Verify VerifyGroup"},
    # The right answers: no policy, and no agent, may have them.
    "gymmesh.verify.v1.AuditService": {"audit": "GetExpected"},
    "gymmesh.discovery.v1.DiscoveryService": {
        "register": "Register Renew Deregister",
        "observe": "ListInstances WatchInstances",
    },
    "gymmesh.mux.v1.MuxService": {"observe": "Exchange"},
    "envoy.service.discovery.v3.AggregatedDiscoveryService": {
        "observe": "StreamAggregatedResources DeltaAggregatedResources"
    },
    "grpc.reflection.v1alpha.ServerReflection": {"observe": "ServerReflectionInfo"},
}

#: The permission that each method takes, by `package.Service/Method`.
PERMISSION_OF: Final[Mapping[str, Permission]] = {
    f"{service}/{method}": permission
    for service, permissions in _METHODS.items()
    for permission, methods in permissions.items()
    for method in methods.split()
}


def refusal_of(identity: Identity | None, method: str) -> MeshError | None:
    """Why an identity may not call a method; None: it may. ``identity`` None: not known here."""
    if identity is None:
        return MeshError(
            errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
            "the caller is not known here; show a certificate or a bearer token of an identity "
            "that this mesh is configured with",
        )
    permission = PERMISSION_OF.get(method)
    if permission is not None and permission in identity.may:
        return None
    takes = f"which takes the permission '{permission}'" if permission else "as nobody may here"
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_PERMITTED,
        f"'{identity.name}' may not call {method}, {takes}",
        metadata={"method": method},
    )
