"""Sandboxes with bubblewrap: no daemon, a start within milliseconds.

Each sandbox is one bubblewrap with its own namespaces over a copy-on-write file system (overlayfs),
with a filter of system calls and a control group. Its first process only waits. Programs join it
from the spawner, so the image needs nothing of gymmesh. bubblewrap's manual: bwrap(1).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import SandboxBackend, SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.errors import image_failed, option_unsupported
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.roots import RootImage
from gymmesh_sandbox.backends.bubblewrap.sandbox import BubblewrapBox
from gymmesh_sandbox.backends.bubblewrap.settings import HOST_IMAGE, read_settings
from gymmesh_sandbox.backends.bubblewrap.store import ImageStore
from gymmesh_sandbox.backends.bubblewrap.tree import IdMap, SandboxTree
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser, find_user
from gymmesh_sandbox.errors import sandbox_lost
from gymmesh_sandbox_local import (
    Descriptors,
    Groups,
    SpawnError,
    Starter,
    UnknownProcessor,
    filter_for,
    first_process_for,
)

_LOGGER = logging.getLogger("gymmesh.sandbox")
_NETWORKS = (
    sandbox_pb2.NETWORK_KIND_NONE,
    sandbox_pb2.NETWORK_KIND_RELAY,
    sandbox_pb2.NETWORK_KIND_HOSTS,
    sandbox_pb2.NETWORK_KIND_OPEN,
)


class BubblewrapBackend(SandboxBackend):
    """See SandboxBackend."""

    name = "bubblewrap"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._settings = read_settings(options)
        self.default_image = self._settings.default_image
        self._machine: Machine | None = None
        self._store: ImageStore | None = None
        self._tokens = itertools.count(1)
        self._boxes: set[BubblewrapBox] = set()
        self._restarting = asyncio.Lock()

    async def open(self) -> None:
        bwrap = shutil.which("bwrap") or ""
        if not bwrap:
            raise ConfigError(
                "bubblewrap is not installed on this machine; run: apt-get install bubblewrap"
            )
        try:
            calls, first = filter_for(platform.machine()), first_process_for(platform.machine())
        except UnknownProcessor as error:
            raise ConfigError(f"Sandboxes cannot be created on this machine: {error}.") from None
        self.version = await asyncio.to_thread(_version, bwrap)
        groups = Groups(f"probe {os.getpid()}")
        usable = await asyncio.to_thread(groups.usable)
        if not usable:
            _LOGGER.warning(
                "The sandbox service can't use control groups, so the memory and processors of a "
                "sandbox are not limited. Run the service as root, or delegate the controllers "
                "memory and pids to the service; see docs/how-to/sandbox.md."
            )
        self._machine = Machine(
            bwrap=bwrap,
            filter=calls,
            first_process=_memory_file(first),
            starter=Starter(),
            grouped=usable,
            yields=self._settings.yields,
        )
        self.capabilities = sandbox_pb2.Capabilities(
            memory=usable,
            cpu=usable and groups.bounds_cpu,
            pids=True,
            disk=True,
            snapshots=True,
            forks=True,
            users=self._machine.privileged,
            networks=_NETWORKS,
            ports=True,
            thread_usage=True,
            process_limits=True,
            relay_ports=True,
        )
        try:
            await self._machine.starter.open()
            self._store = ImageStore(self._settings, self._machine.ids(0))
            await asyncio.to_thread(self._store.sweep)
            await self._probe(self._store)
        except (OSError, MeshError) as error:
            await self.close()
            raise ConfigError(
                f"bubblewrap does not work on this machine ({error}). bubblewrap needs "
                "unprivileged user namespaces, and overlayfs over the folder "
                f"{self._settings.folder}."
            ) from None

    async def _probe(self, store: ImageStore) -> None:
        """Starts a sandbox, so that a problem of the machine is known before the first request."""
        spec = SandboxSpec(
            sandbox_id="probe",
            instance_id=f"probe {os.getpid()} {id(self)}",
            root=HOST_IMAGE,
            resources=sandbox_pb2.Resources(),
            network=sandbox_pb2.Network(none=sandbox_pb2.NoNetwork()),
        )
        try:
            box = await self.create(spec)
            await box.end()
        finally:
            await asyncio.to_thread(store.remove_instance, spec.instance_id)

    async def end_leftovers(self, instance_id: str) -> int:
        _, store = self._opened()
        return await asyncio.to_thread(store.take_instance, instance_id)

    async def images(self) -> Sequence[sandbox_pb2.Image]:
        return self._opened()[1].images()

    async def create(self, spec: SandboxSpec) -> BubblewrapBox:
        machine, store = self._opened()
        if not isinstance(spec.root, str):
            raise option_unsupported("build")
        try:
            await self._restart(machine)
        except SpawnError as error:
            raise sandbox_lost(
                spec.sandbox_id, f"the process that starts sandboxes did not start: {error}"
            ) from error
        image, user = await self._choose(store, spec, spec.root)
        token = next(self._tokens)
        folder = store.instance_folder(spec.instance_id) / "boxes" / str(token)
        box = BubblewrapBox(machine, store, spec, image, user, folder, token)
        box.on_end(self._boxes.discard)
        self._boxes.add(box)
        await box.open()
        return box

    async def _choose(
        self, store: ImageStore, spec: SandboxSpec, name: str
    ) -> tuple[RootImage, ImageUser]:
        """The image, whose layers are in use from now on, and the user of a sandbox."""

        def choose() -> tuple[RootImage, ImageUser]:
            image = store.image(spec.instance_id, name)
            try:
                if spec.image_digest and spec.image_digest != image.digest:
                    raise image_failed(image.name, f"its digest is {image.digest or 'not known'}")
                return image, _image_user(image, spec.user or image.user)
            except BaseException:
                store.release(image.layers)
                raise

        def release(chosen: asyncio.Future[tuple[RootImage, ImageUser]]) -> None:
            if not chosen.cancelled() and chosen.exception() is None:
                layers = chosen.result()[0].layers
                asyncio.get_running_loop().run_in_executor(None, store.release, layers)

        choosing = asyncio.ensure_future(asyncio.to_thread(choose))
        try:
            return await asyncio.shield(choosing)
        except asyncio.CancelledError:
            choosing.add_done_callback(release)  # an image may take long to be unpacked
            raise

    async def _restart(self, machine: Machine) -> None:
        """Starts the spawner again after it was killed. Raises SpawnError."""
        async with self._restarting:
            if not machine.starter.running:
                await machine.starter.open()

    async def delete_snapshot(self, name: str) -> None:
        await asyncio.to_thread(self._opened()[1].delete_snapshot, name)

    async def close(self) -> None:
        machine, self._machine = self._machine, None
        if machine is None:
            return
        await asyncio.gather(*(box.end() for box in list(self._boxes)), return_exceptions=True)
        await machine.starter.close()
        machine.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> tuple[Machine, ImageStore]:
        if self._machine is None or self._store is None:
            raise RuntimeError("the backend is not open")
        return self._machine, self._store


def _image_user(image: RootImage, wanted: str) -> ImageUser:
    """A user, from the files of an image."""
    passwd, group = (_first_file(image, name) for name in (b"/etc/passwd", b"/etc/group"))
    return find_user(wanted or "0", passwd, group)


def _first_file(image: RootImage, path: bytes) -> bytes:
    for layer in image.layers:
        tree = SandboxTree(os.open(layer, os.O_PATH | os.O_CLOEXEC), IdMap(0, 0, 0), owns=False)
        try:
            if content := tree.read_small(path, 1 << 20):
                return content
        finally:
            tree.close()
    return b""


def _version(bwrap: str) -> str:
    """The output of `bwrap --version`; empty if there is none."""
    try:
        said = subprocess.run([bwrap, "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.decode("utf-8", "replace").strip().rpartition(" ")[2]


def _memory_file(content: bytes) -> int:
    with Descriptors() as owned:
        return owned.give(owned.memory_file(content))
