"""The content of a request, checked and with all defaults filled in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.errors import field_invalid, field_missing
from gymmesh_runtime.names import check_name
from gymmesh_sandbox.backends import SandboxSpec, host_pattern
from gymmesh_sandbox.errors import option_unsupported, path_invalid
from gymmesh_sandbox.processes import ProcessLimits

_SERVICE: Final = "gymmesh.sandbox.v1.SandboxService"
_MILLISECONDS: Final = 1000
_LARGEST_SIGNAL: Final = 64
_LARGEST_PORT: Final = 65_535
_MOST_LABELS: Final = 64
_NETWORKS: Final = {
    "none": sandbox_pb2.NETWORK_KIND_NONE,
    "relay": sandbox_pb2.NETWORK_KIND_RELAY,
    "hosts": sandbox_pb2.NETWORK_KIND_HOSTS,
    "open": sandbox_pb2.NETWORK_KIND_OPEN,
}
_PROCESS_LIMITS: Final = ("cpu_s", "file_bytes", "address_space_bytes", "open_files")


@dataclass(frozen=True, slots=True)
class Offer:
    """What an instance offers.

    Attributes:
        backend: the backend's name.
        default_image: empty: a request must name one.
    """

    backend: str
    default_image: str
    capabilities: sandbox_pb2.Capabilities
    limits: sandbox_pb2.ServiceLimits


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """A requested sandbox: what the backend starts, and what the service does with it.

    Attributes:
        spec: for the backend.
        request: the request, unchanged.
        ttl_s: how long the own lease lasts.
        start_timeout_s: the maximum time until the sandbox is ready.
        process_limits: the limits of the process that is started with the sandbox.
    """

    spec: SandboxSpec
    request: sandbox_pb2.CreateSandboxRequest
    ttl_s: int
    start_timeout_s: int
    process_limits: ProcessLimits | None

    def of_snapshot(self, sandbox_id: str, snapshot: str, ttl_s: int) -> SandboxPlan:
        """The plan of a fork: the same, from a snapshot, which already has the files."""
        request = sandbox_pb2.CreateSandboxRequest()
        request.CopyFrom(self.request)
        request.ClearField("files")
        request.ClearField("image_digest")
        request.image = snapshot
        spec = replace(self.spec, sandbox_id=sandbox_id, root=snapshot, image_digest="")
        return replace(self, spec=spec, request=request, ttl_s=ttl_s or self.ttl_s)


def plan_of(
    request: sandbox_pb2.CreateSandboxRequest, sandbox_id: str, instance_id: str, offer: Offer
) -> SandboxPlan:
    """The plan of a request.

    Raises FIELD_INVALID, REQUIRED_FIELD_MISSING, SANDBOX_OPTION_UNSUPPORTED and
    SANDBOX_PATH_INVALID.
    """
    limits = offer.limits
    _check_texts(request)
    if request.WhichOneof("root") == "build" and not offer.capabilities.builds:
        raise option_unsupported("build", offer.backend)
    image = request.image or offer.default_image
    if request.WhichOneof("root") != "build" and not image:
        raise field_missing("image", f"{_SERVICE}/CreateSandbox")
    _check_at_most("ttl_s", request.ttl_s, limits.max_ttl_s)
    _check_at_most("start_timeout_s", request.start_timeout_s, limits.start_timeout_s)
    for file in request.files:
        check_path(file.path)
    process_limits = None
    if request.HasField("process"):
        process_limits = process_limits_of(request.process, offer, field="process")
    spec = SandboxSpec(
        sandbox_id=sandbox_id,
        instance_id=instance_id,
        root=request.build if request.WhichOneof("root") == "build" else image,
        image_digest=request.image_digest,
        resources=resources_of(request.resources, offer),
        network=_network_of(request.network, offer),
        env=dict(request.env),
        user=request.user,
        workdir=request.workdir,
        labels=dict(request.labels),
    )
    return SandboxPlan(
        spec,
        request,
        request.ttl_s or limits.default_ttl_s,
        request.start_timeout_s or limits.start_timeout_s,
        process_limits,
    )


def resources_of(asked: sandbox_pb2.Resources, offer: Offer) -> sandbox_pb2.Resources:
    """The resources of a sandbox. Raises FIELD_INVALID and SANDBOX_OPTION_UNSUPPORTED."""
    can = offer.capabilities
    supported = {
        "cpu_millis": can.cpu,
        "memory_bytes": can.memory,
        "pids": can.pids,
        "disk_bytes": can.disk,
        "life_s": True,
    }
    found = sandbox_pb2.Resources()
    for name, able in supported.items():
        amount: int = getattr(asked, name)
        if amount and not able:
            raise option_unsupported(f"resources.{name}", offer.backend)
        most: int = getattr(offer.limits.max_resources, name)
        _check_at_most(f"resources.{name}", amount, most)
        amount = amount or getattr(offer.limits.default_resources, name) or most
        setattr(found, name, amount if able else 0)
    return found


def process_limits_of(
    process: process_pb2.ProcessSpec, offer: Offer, *, field: str
) -> ProcessLimits:
    """What is kept of a process; `field` is the path of its message in the request.

    Raises FIELD_INVALID, REQUIRED_FIELD_MISSING and SANDBOX_OPTION_UNSUPPORTED.
    """
    command = process.WhichOneof("command")
    if command is None:
        raise field_missing(f"{field}.argv", _SERVICE)
    if command == "argv" and any(b"\0" in word for word in process.argv.words):
        raise field_invalid(f"{field}.argv.words", "contains a zero byte")
    if command == "argv" and not process.argv.words[0]:
        raise field_invalid(f"{field}.argv.words[0]", "is empty; set the name of the program")
    for name in ("shell", "cwd", "user"):
        _check_text(f"{field}.{name}", getattr(process, name))
    _check_env(f"{field}.env", process.env)
    for name in ("stdout_bytes", "stderr_bytes"):
        _check_at_most(f"{field}.{name}", getattr(process, name), offer.limits.max_output_bytes)
    if not offer.capabilities.process_limits:
        for name in _PROCESS_LIMITS:
            if getattr(process, name):
                raise option_unsupported(f"{field}.{name}", offer.backend)
    usual = offer.limits.default_output_bytes
    return ProcessLimits(
        stdout_bytes=process.stdout_bytes or usual,
        stderr_bytes=process.stderr_bytes or usual,
        timeout_s=process.timeout_ms / _MILLISECONDS,
        end_at_output_limit=process.end_at_output_limit,
    )


def check_user(user: str, usual: str, offer: Offer, field: str) -> None:
    """Raises SANDBOX_OPTION_UNSUPPORTED for a user other than the sandbox's, if sandboxes have
    only one.
    """
    if user and user != usual and not offer.capabilities.users:
        raise option_unsupported(field, offer.backend)


def check_path(path: bytes) -> None:
    """Raises SANDBOX_PATH_INVALID for a path that cannot name a file."""
    if not path:
        raise path_invalid(path, "is empty")
    if b"\0" in path:
        raise path_invalid(path, "contains a zero byte")


def check_signal(number: int) -> None:
    """Raises FIELD_INVALID for a number that is not a signal of Linux."""
    if not 1 <= number <= _LARGEST_SIGNAL:
        raise field_invalid("signal", f"is {number}; signals are 1 to {_LARGEST_SIGNAL}")


def check_call(request: sandbox_pb2.CallPortRequest) -> None:
    """Raises FIELD_INVALID for an invalid HTTP request."""
    if not 1 <= request.port <= _LARGEST_PORT:
        raise field_invalid("port", f"is {request.port}; ports are 1 to {_LARGEST_PORT}")
    if request.path and not request.path.startswith("/"):
        raise field_invalid("path", "must begin with a slash")
    if not (request.path.isprintable() and request.path.isascii() and " " not in request.path):
        raise field_invalid("path", "has characters that an HTTP path can't have")
    if request.method and not (request.method.isascii() and request.method.isalpha()):
        raise field_invalid("method", "is not an HTTP method")
    for header in request.headers:
        if not header.name.isascii() or not header.name.isprintable() or " " in header.name:
            raise field_invalid("headers", "has a header with a name that HTTP does not allow")
        if any(byte in b"\r\n\0" for byte in header.value):
            raise field_invalid(
                "headers", f"has a line break or zero byte in the header {header.name}"
            )


def network_kind(network: sandbox_pb2.Network) -> sandbox_pb2.NetworkKind.ValueType:
    """The kind of a network."""
    return _NETWORKS[network.WhichOneof("kind") or "none"]


def _network_of(asked: sandbox_pb2.Network, offer: Offer) -> sandbox_pb2.Network:
    kind = asked.WhichOneof("kind") or "none"
    if _NETWORKS[kind] not in offer.capabilities.networks:
        raise option_unsupported(f"network.{kind}", offer.backend)
    found = sandbox_pb2.Network()
    found.CopyFrom(asked)
    if kind == "none":
        found.none.SetInParent()
    if kind == "relay":
        _check_relay(asked.relay, offer)
    if kind == "hosts":
        if not asked.hosts.hosts:
            raise field_missing("network.hosts.hosts", f"{_SERVICE}/CreateSandbox")
        for host in asked.hosts.hosts:
            check_name("network.hosts.name", host.name)
            if not host_pattern(host.name):
                problem = f"is {host.name!r}; write a host's name, an address, or *.NAME"
                raise field_invalid("network.hosts.name", problem)
            if not all(1 <= port <= _LARGEST_PORT for port in host.ports):
                raise field_invalid(
                    "network.hosts.ports", f"must be ports from 1 to {_LARGEST_PORT}"
                )
    return found


def _check_relay(relay: sandbox_pb2.Relay, offer: Offer) -> None:
    if not (relay.socket_path or relay.port):
        raise field_missing("network.relay.socket_path", f"{_SERVICE}/CreateSandbox")
    if relay.socket_path and not relay.socket_path.startswith("/"):
        raise field_invalid("network.relay.socket_path", "must be an absolute path")
    if relay.port and not offer.capabilities.relay_ports:
        raise option_unsupported("network.relay.port", offer.backend)
    if relay.port > _LARGEST_PORT:
        raise field_invalid(
            "network.relay.port", f"is {relay.port}; ports are 1 to {_LARGEST_PORT}"
        )


def _check_texts(request: sandbox_pb2.CreateSandboxRequest) -> None:
    for name in ("request_id", "rollout_id", "image", "user"):
        check_name(name, getattr(request, name))
    for name in ("workdir", "image_digest"):
        _check_text(name, getattr(request, name))
    _check_env("env", request.env)
    if len(request.labels) > _MOST_LABELS:
        raise field_invalid("labels", f"has {len(request.labels)} labels, more than {_MOST_LABELS}")
    for name, value in request.labels.items():
        check_name("labels", name)
        check_name(f"labels[{name}]", value)


def _check_env(field: str, env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise field_invalid(field, f"has an invalid variable, {name!r}")


def _check_text(field: str, text: str) -> None:
    if "\0" in text:
        raise field_invalid(field, "contains a zero byte")


def _check_at_most(field: str, amount: int, most: int) -> None:
    if most and amount > most:
        raise field_invalid(field, f"is {amount}, but this service allows at most {most}")
