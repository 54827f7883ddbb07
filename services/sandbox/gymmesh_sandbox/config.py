"""The configuration of one sandbox service."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gymmesh.sandbox.v1 import sandbox_pb2

_MIB = 1 << 20
_GIB = 1 << 30
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Optional = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[int, msgspec.Meta(ge=1, le=30 * 86_400)]
_Bytes = Annotated[int, msgspec.Meta(ge=1)]


class ResourceAmounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox may use; 0: no limit.

    Attributes:
        cpu_millis: thousandths of a processor.
        memory_bytes: memory of all its processes together.
        pids: the maximum number of concurrent processes and threads.
        disk_bytes: what it may write to its file system.
        life_s: its lifetime in seconds, which renewals do not extend.
    """

    cpu_millis: _Optional = 0
    memory_bytes: _Optional = 0
    pids: _Optional = 0
    disk_bytes: _Optional = 0
    life_s: _Optional = 0

    def message(self) -> sandbox_pb2.Resources:
        """The contract's message."""
        return sandbox_pb2.Resources(**msgspec.structs.asdict(self))


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sandbox service of the mesh, under `sandboxes:` in a configuration.

    Attributes:
        backend: runs the sandboxes: the name of an entry point (group `gymmesh.sandboxes`), or
            `module:Class`.
        options: the options of the backend's class.
        places: the maximum number of concurrent sandboxes.
        adapts: whether fewer sandboxes are started while memory or processors are short.
        max_waiting: the maximum number of calls of CreateSandbox that wait for a place.
        default_resources: the resources of sandboxes whose request sets none.
        max_resources: the maximum that a request may set.
        default_ttl_s: the time to live of the owner's lease if the request sets none.
        max_ttl_s: the maximum time that any lease may last without a renewal.
        start_timeout_s: the maximum time until a sandbox is ready.
        max_processes: the maximum number of processes that Exec and StartProcess run in one
            sandbox.
        default_output_bytes: how much of each output stream is kept if the request does not set it.
        max_output_bytes: the maximum that can be kept of each output stream.
        kept_output_bytes: the maximum output that is kept of all processes of one sandbox.
        max_port_bytes: the maximum bytes of the body of an answer to CallPort.
        max_archive_bytes: the maximum bytes of an archive that is written, packed or unpacked.
        repeat_s: how long answers are kept for repeats.
    """

    backend: str = "bubblewrap"
    options: dict[str, Any] = {}
    places: _Count = 64
    adapts: bool = True
    max_waiting: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1024
    default_resources: ResourceAmounts = ResourceAmounts()
    max_resources: ResourceAmounts = ResourceAmounts()
    default_ttl_s: _Seconds = 600
    max_ttl_s: _Seconds = 86_400
    start_timeout_s: _Seconds = 300
    max_processes: _Count = 64
    default_output_bytes: _Bytes = _MIB
    max_output_bytes: _Bytes = 16 * _MIB
    kept_output_bytes: _Bytes = 64 * _MIB
    max_port_bytes: _Bytes = 16 * _MIB
    max_archive_bytes: _Bytes = _GIB
    repeat_s: _Seconds = 300

    def __post_init__(self) -> None:
        for low, high in (
            ("default_ttl_s", "max_ttl_s"),
            ("default_output_bytes", "max_output_bytes"),
            ("max_output_bytes", "kept_output_bytes"),
        ):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low}: must be at most {high}, {getattr(self, high)}")
        default, most = self.default_resources, self.max_resources
        for name in ResourceAmounts.__struct_fields__:
            limit = getattr(most, name)
            if limit and not 0 < (getattr(default, name) or limit) <= limit:
                raise ValueError(f"default_resources.{name}: must be at most {limit}")

    def limits(self) -> sandbox_pb2.ServiceLimits:
        """The limits, as the contract's message."""
        return sandbox_pb2.ServiceLimits(
            default_resources=self.default_resources.message(),
            max_resources=self.max_resources.message(),
            default_ttl_s=self.default_ttl_s,
            max_ttl_s=self.max_ttl_s,
            default_output_bytes=self.default_output_bytes,
            max_output_bytes=self.max_output_bytes,
            max_port_bytes=self.max_port_bytes,
            max_archive_bytes=self.max_archive_bytes,
            repeat_s=self.repeat_s,
            max_waiting=self.max_waiting,
            max_processes=self.max_processes,
            start_timeout_s=self.start_timeout_s,
        )
