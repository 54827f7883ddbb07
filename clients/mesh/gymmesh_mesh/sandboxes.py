"""Sandboxes for users of gym-cli: a client of a sandbox service, elsewhere or in this process, and
stored leases.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.sandbox.v1 import grant_pb2, sandbox_pb2
from gymmesh_mesh.compose import make_service, open_here, own_sandbox_spec, specs_of
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.meshes import SCHEMES, read_target, watched
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_sandbox_access import (
    SANDBOX_SERVICE,
    ExecResult,
    SandboxClient,
    SandboxHandle,
    SandboxSpec,
)

__all__ = [
    "SCHEMES",
    "ExecResult",
    "KeptSandbox",
    "SandboxClient",
    "SandboxHandle",
    "SandboxSpec",
    "keep",
    "kept",
    "sandboxes_at",
    "sandboxes_here",
    "taken_up",
]

_USUAL: Final = "sandbox"
_HELLO_S: Final = 10.0


@asynccontextmanager
async def sandboxes_here(config: MeshConfig, name: str = "") -> AsyncIterator[SandboxClient]:
    """Open the sandbox service `name` of a configuration in this process. Without a name: the only
    sandbox service of the configuration, or bubblewrap if the configuration has none. Raises
    ConfigError.
    """
    known = {spec.name: spec for spec in specs_of(config) if spec.kind == "sandbox"}
    if name and name not in known:
        raise ConfigError(f"there is no sandbox service {name!r} in the configuration")
    if not name and len(known) > 1:
        raise ConfigError(
            f"the configuration has several sandbox services; choose one of {', '.join(known)}"
        )
    chosen = name or next(iter(known), _USUAL)
    spec = known.get(chosen) or own_sandbox_spec(chosen, "gym-cli")
    async with AsyncExitStack() as stack:
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        await open_here(make_service(spec), directory, stack)
        yield await stack.enter_async_context(SandboxClient(directory, chosen))


@asynccontextmanager
async def sandboxes_at(
    address: str, name: str = "", security: SecurityConfig | None = None
) -> AsyncIterator[SandboxClient]:
    """Connects to the sandbox service at HOST:PORT, or to all instances of `name` in a registry
    (`discovery://HOST:PORT/NAME`, `consul://…`, `kubernetes://…`). Raises MeshError, ConfigError.
    """
    async with AsyncExitStack() as stack:
        registered = address.startswith(SCHEMES)
        directory = PeerDirectory(watched=registered, credentials=Credentials(security))
        stack.push_async_callback(directory.close)
        chosen = name or _USUAL
        if registered:
            target = read_target(address, MeshConfig().discovery)
            chosen = name or target.agent or _USUAL
            await watched(target, directory, stack)
        else:
            asked = discovery_pb2.Instance(id=address, service=SANDBOX_SERVICE, address=address)
            about: sandbox_pb2.GetServiceResponse = await directory.peer(asked).GetService(
                sandbox_pb2.GetServiceRequest(), timeout=_HELLO_S
            )
            instance = discovery_pb2.Instance(
                id=about.instance_id or address,
                service=SANDBOX_SERVICE,
                name=chosen,
                address=address,
                health=discovery_pb2.HEALTH_SERVING,
            )
            directory.upsert(instance)
        yield await stack.enter_async_context(SandboxClient(directory, chosen))


@dataclass(frozen=True, slots=True)
class KeptSandbox:
    """A sandbox that was left running: the address of its service, and its lease."""

    address: str
    name: str
    grant: grant_pb2.SandboxGrant = field(repr=False)


def keep(file: Path, one: KeptSandbox) -> None:
    """Write the lease to a new file that only its owner can read. Raises ConfigError."""
    ref = one.grant.sandbox
    document = {
        "address": one.address,
        "service": one.name,
        "sandbox_id": ref.sandbox_id,
        "instance_id": ref.instance_id,
        "lease": base64.b64encode(one.grant.lease).decode(),
    }
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as written:
            written.write(json.dumps(document) + "\n")
    except OSError as error:
        raise ConfigError(f"{file} can't be written: {error.strerror}") from None


def kept(file: Path) -> KeptSandbox:
    """Read a lease that `keep` wrote. Raises ConfigError."""
    try:
        document: Any = json.loads(file.read_text(encoding="utf-8"))
        texts = {name: document[name] for name in ("address", "service", "sandbox_id", "lease")}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError
        lease = base64.b64decode(texts["lease"], validate=True)
        ref = grant_pb2.SandboxRef(
            sandbox_id=texts["sandbox_id"],
            service=texts["service"],
            instance_id=document["instance_id"],
        )
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise ConfigError(
            f"{file} is not a lease file; create a lease file with `gym-cli sandbox run "
            "--keep FILE`"
        ) from None
    grant = grant_pb2.SandboxGrant(sandbox=ref, lease=lease)
    return KeptSandbox(texts["address"], texts["service"], grant)


@asynccontextmanager
async def taken_up(
    one: KeptSandbox, security: SecurityConfig | None = None
) -> AsyncIterator[SandboxHandle]:
    """A kept sandbox. It stays after the block unless you end it in the block. Raises MeshError."""
    async with sandboxes_at(one.address, one.name, security) as client:
        handle = client.attach(one.grant, own=True)
        await handle.renewed_lease()
        try:
            yield handle
        finally:
            await handle.leave()
