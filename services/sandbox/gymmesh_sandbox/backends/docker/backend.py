"""The backend for the Docker Engine API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError, explained
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import OUT_OF_MEMORY, SandboxBackend, SandboxSpec
from gymmesh_sandbox.backends.docker.config import DockerOptions
from gymmesh_sandbox.backends.docker.engine import (
    FAILURES,
    DockerEngine,
    one_line,
    unreachable,
)
from gymmesh_sandbox.backends.docker.images import INSTANCE, SANDBOX, DockerImages, FoundImage
from gymmesh_sandbox.backends.docker.relay import ContainerRelay, joins_networks
from gymmesh_sandbox.backends.docker.sandbox import DockerSandbox
from gymmesh_sandbox.backends.docker.watch import Watch
from gymmesh_sandbox.backends.image_shell import scripts
from gymmesh_sandbox.errors import option_unsupported, sandbox_lost

_LOGGER = logging.getLogger("gymmesh.sandbox.docker")

# Those of the backend itself: the first process, its sleep, two shells and what they start.
_OWN_PIDS: Final = 16
_LIFE_MARGIN_S: Final = 60
_NANOSECONDS: Final = 1_000_000
_CLOSE_S: Final = 30.0
_REMOVE_S: Final = 20.0
_ENDED: Final = frozenset(("exited", "dead", "stopped", "stopping", "removing"))


class DockerBackend(SandboxBackend):
    """Runs each sandbox as a container of a daemon of Docker or Podman."""

    name = "docker"
    start_cost_bytes = 8 << 20

    def __init__(self, options: Mapping[str, Any]) -> None:
        try:
            self._options = msgspec.convert(dict(options), DockerOptions)
        except msgspec.ValidationError as error:
            option, problem = explained(error, DockerOptions)
            raise ValueError(f"{option}: {problem}" if option else problem) from None
        self.default_image = self._options.default_image
        self._engine: DockerEngine | None = None
        self._sandboxes: dict[str, DockerSandbox] = {}
        self._making: set[str] = set()  # ids of sandboxes

    async def open(self) -> None:
        url = self._options.url or daemon_url()
        try:
            self._engine = engine = DockerEngine(url)
            version = await engine.docker.version()
        except (*FAILURES, ValueError) as error:
            await self.close()
            raise ConfigError(
                f"No daemon of Docker or Podman answers at {url}: {one_line(str(error))}. "
                "Start a daemon, or set the option 'url' to the daemon's address.",
                path="options.url",
            ) from None
        await engine.docker.system.info()  # agrees on the version of the API
        self.version = str(version.get("Version", ""))
        local = url.startswith("unix://")
        networks = [sandbox_pb2.NETWORK_KIND_NONE, sandbox_pb2.NETWORK_KIND_OPEN]
        if local:
            networks.insert(1, sandbox_pb2.NETWORK_KIND_RELAY)
        self.capabilities = sandbox_pb2.Capabilities(
            snapshots=True,
            forks=True,
            builds=self._options.builds,
            fetches=self._options.pull != "never",
            memory=True,
            cpu=True,
            pids=True,
            disk=self._options.disk,
            users=True,
            ports=True,
            networks=networks,
            process_limits=True,
            relay_ports=local and joins_networks(),
        )
        self._images = DockerImages(engine, self._options)
        self._watch = Watch(
            engine,
            on_end=self._container_ended,
            on_connected=self._connected,
            on_gone=self._daemon_gone,
        )

    async def end_leftovers(self, instance_id: str) -> int:
        found = await self._containers(instance_id)
        for container in found:
            await _remove(container)
        return len(found) + await self._images.drop_leftovers(instance_id)

    async def images(self) -> Sequence[sandbox_pb2.Image]:
        self._opened()
        return await self._images.all()

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        self._opened()
        self._check(spec)
        self._watch.start(spec.instance_id)
        self._making.add(spec.sandbox_id)
        try:
            return await self._create(spec)
        finally:
            self._making.discard(spec.sandbox_id)

    async def _create(self, spec: SandboxSpec) -> DockerSandbox:
        engine = self._opened()
        container: DockerContainer | None = None
        sandbox: DockerSandbox | None = None
        relay = _relay_of(spec)
        try:
            image = await self._images.find(spec.root, spec.image_digest)
            if relay is not None:
                await relay.open()
            container = await self._new_container(spec, image, relay)
            sandbox = DockerSandbox(
                engine,
                container,
                spec,
                image=image.name,
                image_digest=image.digest,
                user=spec.user or image.user or "root",
                workdir=spec.workdir or image.workdir,
                relay=relay,
                keep=lambda one, name: self._keep(one, spec, image, name),
                remove=self._end,
            )
            self._sandboxes[container.id] = sandbox
            await container.start()
            if relay is not None:
                await self._join(relay, container, spec)
            await sandbox.prepare()
        except BaseException as error:
            await asyncio.shield(self._undo(container, sandbox, relay))
            if isinstance(error, FAILURES):
                raise _start_failed(error, spec) from None
            raise
        return sandbox

    async def delete_snapshot(self, name: str) -> None:
        self._opened()
        await self._images.drop(name)

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                if hasattr(self, "_watch"):
                    await self._watch.close()
                ending = [sandbox.end() for sandbox in tuple(self._sandboxes.values())]
                await asyncio.gather(*ending, return_exceptions=True)
                if hasattr(self, "_images"):
                    await self._images.drop_all()
        except (TimeoutError, *FAILURES) as error:
            _LOGGER.warning(
                "the daemon did not remove all containers and images of this instance: %s; the "
                "next start of this instance removes the rest",
                one_line(str(error)) or "no answer",
            )
        finally:
            await engine.close()

    def _opened(self) -> DockerEngine:
        assert self._engine is not None, "call open() first"
        return self._engine

    def _check(self, spec: SandboxSpec) -> None:
        if spec.resources.disk_bytes and not self._options.disk:
            raise option_unsupported("resources.disk_bytes", self.name)
        kind = spec.network.WhichOneof("kind")
        if kind == "hosts" or (kind == "relay" and spec.relay is None):
            raise option_unsupported(f"network.{kind}", self.name)

    async def _join(
        self, relay: ContainerRelay, container: DockerContainer, spec: SandboxSpec
    ) -> None:
        state = await _state(container)
        try:
            await relay.join(container.id, int(state["Pid"]) if state else 0)
        except OSError as error:
            _LOGGER.warning(
                "sandbox %s: the service cannot join the network of the sandbox's container: %s; "
                "run the service on the daemon's machine, outside of containers",
                spec.sandbox_id,
                one_line(str(error)),
            )
            raise option_unsupported("network.relay.port", self.name) from None

    async def _new_container(
        self, spec: SandboxSpec, image: FoundImage, relay: ContainerRelay | None
    ) -> DockerContainer:
        making = asyncio.ensure_future(
            self._opened().docker.containers.create(
                self._configuration(spec, image, relay), name=f"gymmesh-{spec.sandbox_id}"
            )
        )
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            # The daemon makes it all the same.
            with contextlib.suppress(TimeoutError, *FAILURES):
                async with asyncio.timeout(_REMOVE_S):
                    await _remove(await making)
            raise

    def _configuration(
        self, spec: SandboxSpec, image: FoundImage, relay: ContainerRelay | None
    ) -> dict[str, Any]:
        resources = spec.resources
        is_open = spec.network.WhichOneof("kind") == "open"
        host: dict[str, Any] = {
            "Ulimits": [
                {"Name": name, "Soft": limit, "Hard": limit}
                for name, limit in self._options.ulimits.items()
            ]
        }
        if not is_open:
            host["NetworkMode"] = "none"
        if resources.memory_bytes:
            host["Memory"] = host["MemorySwap"] = resources.memory_bytes
        if resources.cpu_millis:
            host["NanoCpus"] = resources.cpu_millis * _NANOSECONDS
        if resources.pids:
            host["PidsLimit"] = resources.pids + _OWN_PIDS
        if resources.disk_bytes:
            host["StorageOpt"] = {"size": str(resources.disk_bytes)}
        if self._options.runtime:
            host["Runtime"] = self._options.runtime
        if relay is not None and relay.path:
            host["Mounts"] = [
                {
                    "Type": "bind",
                    "Source": relay.path,
                    "Target": spec.network.relay.socket_path,
                    "ReadOnly": False,
                }
            ]
        life = resources.life_s + _LIFE_MARGIN_S if resources.life_s else 0
        return {
            "Image": image.reference,
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", scripts.FIRST_PROCESS, "sh", str(life)],
            # Variables are given to each process: an image that is made of it has none.
            "Labels": {
                **spec.labels,
                INSTANCE: spec.instance_id,
                SANDBOX: spec.sandbox_id,
            },
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": host,
        }

    async def _keep(
        self, sandbox: DockerSandbox, spec: SandboxSpec, image: FoundImage, name: str
    ) -> sandbox_pb2.Image:
        try:
            kept = await self._images.keep(sandbox.container, spec.instance_id, name, image.user)
        except FAILURES as error:
            raise _start_failed(error, spec) from None
        return sandbox_pb2.Image(name=name, digest=kept.digest, snapshot=True)

    async def _end(self, sandbox: DockerSandbox) -> None:
        container = sandbox.container
        self._sandboxes.pop(container.id, None)
        try:
            async with asyncio.timeout(_REMOVE_S):
                await _remove(container)
                await self._images.drop_unused()
        except (TimeoutError, *FAILURES) as error:
            # Once the daemon is back, it is removed: see `_end_unknown`.
            _LOGGER.warning(
                "the daemon could not remove the container of sandbox %s yet: %s; the service "
                "removes the container later",
                sandbox.sandbox_id,
                one_line(str(error)) or "no answer",
            )

    async def _undo(
        self,
        container: DockerContainer | None,
        sandbox: DockerSandbox | None,
        relay: ContainerRelay | None,
    ) -> None:
        if sandbox is not None:
            await sandbox.end()
        elif container is not None:
            with contextlib.suppress(TimeoutError, *FAILURES):
                async with asyncio.timeout(_REMOVE_S):
                    await _remove(container)
        if relay is not None:
            await relay.close()

    async def _container_ended(self, container_id: str) -> None:
        sandbox = self._sandboxes.get(container_id)
        if sandbox is not None and not sandbox.ended:
            sandbox.lose(await _cause(sandbox.container))

    async def _containers(self, instance_id: str) -> Sequence[DockerContainer]:
        """The containers of an instance, running or not."""
        found: Sequence[DockerContainer] = await self._opened().docker.containers.list(
            all="true", filters=json.dumps({"label": [f"{INSTANCE}={instance_id}"]})
        )
        return found

    async def _end_unknown(self, instance_id: str) -> None:
        """Removes what the daemon created without an answer, or did not remove, before it was
        unreachable.
        """
        containers = await self._containers(instance_id)
        known = self._making | {one.sandbox_id for one in self._sandboxes.values()}
        for container in containers:
            if container["Labels"].get(SANDBOX) not in known:
                with contextlib.suppress(*FAILURES):
                    await _remove(container)
        with contextlib.suppress(*FAILURES):
            await self._images.drop_leftovers(instance_id)

    async def _connected(self, instance_id: str) -> None:
        """Checks what happened while no events were received."""
        await self._end_unknown(instance_id)
        for container_id, sandbox in tuple(self._sandboxes.items()):
            state = await _state(sandbox.container)
            # One that is about to be started is not among them.
            if state is None or state.get("Status") in _ENDED:
                await self._container_ended(container_id)

    def _daemon_gone(self) -> None:
        for sandbox in tuple(self._sandboxes.values()):
            sandbox.lose("the daemon is unreachable")


def _relay_of(spec: SandboxSpec) -> ContainerRelay | None:
    return None if spec.relay is None else ContainerRelay(spec.network.relay, spec.relay)


def daemon_url() -> str:
    """The address of the daemon: `DOCKER_HOST`, or without this variable the first usual socket
    that exists.
    """
    if found := os.environ.get("DOCKER_HOST"):
        return found
    of_user = os.environ.get("XDG_RUNTIME_DIR", "")
    usual = [
        "/var/run/docker.sock",
        *([f"{of_user}/docker.sock", f"{of_user}/podman/podman.sock"] if of_user else ()),
        "/run/podman/podman.sock",
    ]
    for path in usual:
        if Path(path).is_socket():
            return f"unix://{path}"
    return f"unix://{usual[0]}"


async def _remove(container: DockerContainer) -> None:
    """Ends and removes a container; does nothing if it does not exist."""
    while True:
        try:
            await container.delete(force=True, v=True)
        except DockerError as error:
            if error.status == 409 and "already in progress" in error.message:
                await asyncio.sleep(0.05)
                continue
            if error.status != 404:
                raise
        return


async def _state(container: DockerContainer) -> Mapping[str, Any] | None:
    try:
        state: Mapping[str, Any] = (await container.show())["State"]
        return state
    except DockerError as error:
        if error.status == 404:
            return None
        raise


async def _cause(container: DockerContainer) -> str:
    """Why a container ended."""
    try:
        state = await _state(container)
    except FAILURES:
        return "the sandbox's container ended"
    if state is None:
        return "the sandbox's container was removed"
    if state.get("OOMKilled"):
        return OUT_OF_MEMORY
    code = state.get("ExitCode")
    return (
        "its lifetime is over"
        if code == 0
        else f"the sandbox's container ended with the exit code {code}"
    )


def _start_failed(error: BaseException, spec: SandboxSpec) -> MeshError:
    if not isinstance(error, DockerError) or unreachable(error):
        return sandbox_lost(spec.sandbox_id, "the daemon is unreachable")
    image = spec.root if isinstance(spec.root, str) else "of a build"
    words = one_line(getattr(error, "message", "") or str(error))
    if "storage-opt" in words or "StorageOpt" in words:
        return option_unsupported("resources.disk_bytes", DockerBackend.name)
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED,
        f"The daemon did not start a container of the image '{image}': {words}.",
        metadata={"image": image, "cause": words},
    )
