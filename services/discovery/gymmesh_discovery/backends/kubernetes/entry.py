"""Converts the endpoints of a slice to instances of the mesh. Pure.

Kubernetes copies only a Service's labels to its EndpointSlices, so labels describe the Service. A
slice written by a different program may use annotations instead, whose values are not limited to
the characters of labels.

    gymmesh.io/service    agent, model, resource or discovery, or a gRPC service's full name
    gymmesh.io/name       the agent, model or environment
    gymmesh.io/contract   the contract's version, such as 1.0
    gymmesh.io/weight     its share of the load, relative to others of its name

Other keys that begin with ``gymmesh.io/`` are the instance's meta. A port named ``gateway`` is also
in the meta, as an agent would register it: `gateway`, with the endpoint's address and this port.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.entry import MAX_WEIGHT, EntryError, check_contract, check_names
from gymmesh_discovery.backends.kubernetes.objects import Conditions, Endpoint, EndpointSlice
from gymmesh_runtime.addresses import at_port

Instance = discovery_pb2.Instance
Health = discovery_pb2.Health

_OWN: Final = "gymmesh.io/"
_SERVICE_NAME: Final = "kubernetes.io/service-name"
# The kind, and what ids begin with: the words of `gym-cli up`, for which an environment is no
# resource.
_KINDS: Final = {
    "agent": ("gymmesh.agent.v1.AgentService", "agent"),
    "model": ("gymmesh.model.v1.ModelService", "model"),
    "resource": ("gymmesh.resource.v1.ResourceService", "environment"),
    "sandbox": ("gymmesh.sandbox.v1.SandboxService", "sandbox"),
    "discovery": ("gymmesh.discovery.v1.DiscoveryService", "registry"),
}
_FULL_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_MAX_META_KEYS: Final = 64
# The port of an agent's gateway, and the key of its address: each instance has its own, which no
# label of their Service can say.
_GATEWAY: Final = "gateway"
_OURS: Final = 3  # keys of the meta that are not the labels'


def read_slice(
    found: EndpointSlice, port: str, metrics_port: str
) -> tuple[list[Instance], list[str]]:
    """The instances of a slice, and a sentence for everything in it that was skipped."""
    name = found.metadata.name
    if not found.endpoints:
        return [], []  # before its first pod is there, it says nothing of the ports either
    try:
        common, prefix = _common(found)
        number = _port(found, port)
    except EntryError as error:
        return [], [f"skipped the EndpointSlice {name}: {error}"]
    metrics, gateway = _ports(found).get(metrics_port), _ports(found).get(_GATEWAY)
    instances, left_out = [], []
    for endpoint in found.endpoints:
        try:
            instances.append(_instance(endpoint, common, prefix, number, metrics, gateway))
        except EntryError as error:
            left_out.append(f"skipped an endpoint of the EndpointSlice {name}: {error}")
    return instances, left_out


def health_of(conditions: Conditions) -> Health.ValueType:
    """An endpoint's health: a terminating one is draining while it still accepts calls."""
    # What is unknown counts as ready, and as serving where it is ready: so says the API.
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    if conditions.terminating:
        return discovery_pb2.HEALTH_DRAINING if serving else discovery_pb2.HEALTH_NOT_SERVING
    return discovery_pb2.HEALTH_SERVING if ready else discovery_pb2.HEALTH_NOT_SERVING


def _common(found: EndpointSlice) -> tuple[Instance, str]:
    """What all instances of a slice have in common, and what their ids begin with."""
    metadata = found.metadata
    said = _said(metadata.labels) | _said(metadata.annotations)
    kind, noun = _kind(said.pop("service", ""))
    name = said.pop("name", "")
    if not name:
        raise EntryError(f"the EndpointSlice has no label {_OWN}name")
    contract, weight = said.pop("contract", ""), said.pop("weight", "1")
    check_contract(contract)
    if not re.fullmatch(r"[0-9]{1,5}", weight) or not 0 < int(weight) <= MAX_WEIGHT:
        raise EntryError(
            f"the EndpointSlice's label {_OWN}weight is not a number from 1 to {MAX_WEIGHT}"
        )
    if len(said) > _MAX_META_KEYS - _OURS:
        raise EntryError(
            f"the EndpointSlice has more than {_MAX_META_KEYS - _OURS} labels that "
            f"start with {_OWN}"
        )
    if service := (metadata.labels or {}).get(_SERVICE_NAME):
        said["kubernetes_service"] = service
    instance = Instance(
        service=kind, name=name, contract_version=contract, weight=int(weight), meta=said
    )
    # The mesh's own registry is called that and nothing more.
    return instance, noun if name == noun else f"{noun}-{name}"


def _said(texts: Mapping[str, str] | None) -> dict[str, str]:
    return {
        key.removeprefix(_OWN): value
        for key, value in (texts or {}).items()
        if key != _OWN and key.startswith(_OWN)
    }


def _kind(text: str) -> tuple[str, str]:
    if text in _KINDS:
        return _KINDS[text]
    if _FULL_NAME.fullmatch(text):
        return text, text
    raise EntryError(
        f"the EndpointSlice's label {_OWN}service is '{text[:80]}'; expected {', '.join(_KINDS)} "
        "or a gRPC "
        "service's full name"
    )


def _ports(found: EndpointSlice) -> dict[str, int]:
    return {one.name or "": one.port for one in found.ports or [] if one.port}


def _port(found: EndpointSlice, name: str) -> int:
    ports = _ports(found)
    if name not in ports:
        shown = ", ".join(f"'{one}'" for one in sorted(ports)) or "none"
        raise EntryError(f"the EndpointSlice has no port named '{name}'. Named ports: {shown}")
    return ports[name]


def _instance(
    endpoint: Endpoint,
    common: Instance,
    prefix: str,
    port: int,
    metrics: int | None,
    gateway: int | None,
) -> Instance:
    if not endpoint.addresses:
        raise EntryError("the endpoint has no address")
    host = endpoint.addresses[0]  # the API: only the first is to be used
    reference = endpoint.target_ref
    instance = Instance()
    instance.CopyFrom(common)
    instance.address = at_port(host, port)
    instance.id = f"{prefix}-{reference.uid if reference and reference.uid else instance.address}"
    instance.health = health_of(endpoint.conditions)
    if metrics is not None:
        instance.metrics_address = at_port(host, metrics)
    if gateway is not None:
        instance.meta[_GATEWAY] = at_port(host, gateway)
    if reference is not None and reference.name:
        instance.meta["pod"] = reference.name
    if endpoint.zone or endpoint.node_name:
        instance.locality.zone = endpoint.zone or ""
        instance.locality.host = endpoint.node_name or ""
    where = instance.locality
    fields = ("id", "name", "address", "contract_version")
    check_names((field, getattr(instance, field)) for field in fields)
    texts = (*instance.meta, *instance.meta.values(), where.zone, where.host)
    check_names(("a label, zone or node of the endpoint", text) for text in texts)
    return instance
