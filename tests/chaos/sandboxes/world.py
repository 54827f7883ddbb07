"""The processes of a world of sandboxes, each alone under its own supervisor."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_mesh.sandboxes import SandboxClient
from gymmesh_resource.service import RESOURCE_SERVICE
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox.service import SANDBOX_SERVICE
from tests.chaos.processes import Kept, Worker, begin_workers
from tests.chaos.sandboxes.machine import SandboxMachine
from tests.chaos.sandboxes.plan import OWNERS, SandboxWorld
from tests.support.ports import free_port
from tests.support.proxy import Proxy

BOXES: Final = "boxes"
INSTANCE: Final = f"sandbox-{BOXES}-0"
#: The command line of podman, as JSON, and the image of its sandboxes; see tools/test-sandboxes.sh.
PODMAN: Final = "GYMMESH_TEST_PODMAN"
_IMAGE: Final = os.environ.get("GYMMESH_TEST_SANDBOX_IMAGE", "local/py:1")
_ANSWERS_S: Final = 30.0
# Nothing else is killed here.
_KINDS: Final = ("discovery", "sandbox", "environment")


class PodmanDaemon(Kept):
    """Podman's service of Docker's API, which containers outlive."""

    name = "podman"

    def __init__(self, socket: Path, log: Path) -> None:
        super().__init__(log)
        self.url = f"unix://{socket}"
        self._socket = socket

    async def command(self) -> Sequence[str]:
        self._socket.unlink(missing_ok=True)
        podman = json.loads(os.environ[PODMAN])
        # It ends with this process, however that ends.
        return ["setpriv", "--pdeathsig", "KILL", *podman, "system", "service", "--time", "0",
                self.url]  # fmt: skip

    async def hello(self, process: asyncio.subprocess.Process) -> bool:
        async with asyncio.timeout(_ANSWERS_S):
            while process.returncode is None:
                try:
                    _, writer = await asyncio.open_unix_connection(self._socket)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return True
        return False


@dataclass
class SandboxesUp:
    """What is up.

    Attributes:
        mark: see SandboxMachine.
        service, owners, daemon: the processes; `daemon` is None for bubblewrap.
        owner_ports: where each owner is called.
        wire: between the client and the service.
        peers: by which the service and the owners are called directly.
        client: of the service, over the wire.
        machine: what is left of the sandboxes.
    """

    mark: str
    service: Worker
    service_port: int
    owners: dict[str, Worker]
    owner_ports: dict[str, int]
    daemon: PodmanDaemon | None
    wire: Proxy
    peers: PeerDirectory
    client: SandboxClient
    machine: SandboxMachine

    @property
    def sandboxes(self) -> Any:
        """The service's peer."""
        return self.peers.plain_peer(f"127.0.0.1:{self.service_port}", SANDBOX_SERVICE)

    def owner(self, name: str) -> Any:
        """An owner's peer."""
        return self.peers.plain_peer(f"127.0.0.1:{self.owner_ports[name]}", RESOURCE_SERVICE)

    @property
    def pid(self) -> int:
        """The service's process id; 0: it is down."""
        process = self.service.process
        return process.pid if process is not None and process.returncode is None else 0


@asynccontextmanager
async def sandboxes_up(world: SandboxWorld, folder: Path) -> AsyncIterator[SandboxesUp]:
    """Brings a world up in a folder, and takes it down."""
    async with AsyncExitStack() as stack:
        mark = uuid.uuid4().hex
        taken: set[int] = set()
        daemon: PodmanDaemon | None = None
        store: Path | None = folder / "store"
        if world.backend != "bubblewrap":
            store = None
            daemon = PodmanDaemon(folder / "podman.sock", folder / "podman.log")
            stack.push_async_callback(daemon.end)
            await daemon.begin()
        config = _config(world, mark, store, daemon.url if daemon is not None else "")
        workers, ports = await begin_workers(config, folder, taken, stack, _KINDS)
        service = workers.pop(BOXES)
        del workers["registry"]
        wire = await stack.enter_async_context(Proxy(ports[BOXES], port=free_port(taken=taken)))
        peers, far = PeerDirectory(), PeerDirectory()
        stack.push_async_callback(peers.close)
        stack.push_async_callback(far.close)
        instance = discovery_pb2.Instance(
            id=INSTANCE,
            service=SANDBOX_SERVICE,
            name=BOXES,
            address=wire.address,
            health=discovery_pb2.HEALTH_SERVING,
        )
        far.upsert(instance)
        client = await stack.enter_async_context(SandboxClient(far, BOXES))
        url = daemon.url if daemon is not None else ""
        yield SandboxesUp(
            service=service,
            service_port=ports[BOXES],
            owners=workers,
            owner_ports=ports,
            daemon=daemon,
            wire=wire,
            peers=peers,
            client=client,
            machine=SandboxMachine(mark, store=store, daemon=url),
            mark=mark,
        )


def _config(world: SandboxWorld, mark: str, store: Path | None, url: str) -> dict[str, Any]:
    boxes: dict[str, Any] = {"places": 64, "adapts": False}
    if store is not None:
        boxes |= {"options": {"folder": str(store)}}
    else:
        # Machines in machines have lower limits than the daemon asks for.
        ulimits = {"nofile": 4096, "nproc": 4096}
        boxes |= {
            "backend": "docker",
            "options": {"url": url, "default_image": _IMAGE, "ulimits": ulimits},
        }
    environment = {
        "use": "tests.chaos.sandboxes.bench:Bench",
        "options": {"mark": mark, "ttl_s": world.ttl_s},
        "sandboxes": {"sandbox": BOXES},
        "tool_timeout_s": 30,
        "session_idle_s": 6,
    }
    return {
        "environments": dict.fromkeys(OWNERS, environment),
        "sandboxes": {BOXES: boxes},
        "defaults": {"environment": OWNERS[0]},
        "mesh": {"layout": "mesh"},
    }
