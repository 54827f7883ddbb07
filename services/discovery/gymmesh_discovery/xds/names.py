"""The names and types of xDS resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gymmesh_runtime.names import MAX_NAME

_PREFIX: Final = "type.googleapis.com/"
LISTENER: Final = _PREFIX + "envoy.config.listener.v3.Listener"
ROUTE: Final = _PREFIX + "envoy.config.route.v3.RouteConfiguration"
CLUSTER: Final = _PREFIX + "envoy.config.cluster.v3.Cluster"
ENDPOINTS: Final = _PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
#: The types in the order in which they are sent: what is referred to comes first.
TYPES: Final = (CLUSTER, ENDPOINTS, LISTENER, ROUTE)
#: The types whose responses in the state-of-the-world protocol hold all that was subscribed to.
WHOLE: Final = frozenset((CLUSTER, LISTENER))

KINDS: Final = {
    "gymmesh.agent.v1.AgentService": "agent",
    "gymmesh.model.v1.ModelService": "model",
    "gymmesh.resource.v1.ResourceService": "resource",
    "gymmesh.sandbox.v1.SandboxService": "sandbox",
}
_AFFINITY: Final = "affinity."
#: The request header whose value chooses the instance, for targets with affinity.
AFFINITY_HEADER: Final = "gymmesh-affinity"


@dataclass(frozen=True, slots=True)
class XdsTarget:
    """A target such as ``xds:///agent.NAME`` or ``xds:///affinity.agent.NAME``.

    ``group`` is the name without ``affinity.``: all instances of one kind and name.
    """

    group: str
    affinity: bool


def parse_target(name: str) -> XdsTarget | None:
    """The target for the name of a listener, a route or a cluster; None for any other name."""
    group = name.removeprefix(_AFFINITY)
    kind, _, instance_name = group.partition(".")
    if kind not in KINDS.values() or not 0 < len(instance_name) <= MAX_NAME:
        return None
    return XdsTarget(group, affinity=group != name)


def group_of(service: str, name: str) -> str | None:
    """The group of an instance's service and name; None for a kind that is not offered."""
    kind = KINDS.get(service)
    return f"{kind}.{name}" if kind and name else None


def targets_of(group: str) -> tuple[str, str]:
    """Both targets of a group."""
    return group, _AFFINITY + group
