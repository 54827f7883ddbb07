"""The sandbox service: its backend, its sandboxes and its life."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Final

from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving import usable_processors
from gymmesh_runtime.serving.service import Service
from gymmesh_runtime.timers import cancel_and_wait
from gymmesh_sandbox import metrics
from gymmesh_sandbox.admission import Admission, Width
from gymmesh_sandbox.backends import SandboxBackend, find_backend
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.earlier import Life
from gymmesh_sandbox.machine import pressure
from gymmesh_sandbox.places import Places
from gymmesh_sandbox.relay import relay_target
from gymmesh_sandbox.requests import Offer
from gymmesh_sandbox.sandboxes import Sandboxes
from gymmesh_sandbox.servicer import SandboxServicer
from gymmesh_sandbox.snapshots import Snapshots
from gymmesh_sandbox.timers import Clock, Timers

SANDBOX_SERVICE: Final = "gymmesh.sandbox.v1.SandboxService"
_CLOSE_S: Final = 20.0


class SandboxService(Service):
    """One sandbox service of the mesh.

    Args:
        config: the service's configuration.
        name: its name in the mesh.
        instance_id: this instance's id.
        backend: a backend that the caller created; None: the configuration's.
        clock: provides the time.

    Raises ConfigError for a backend that does not exist, or that rejects its options.
    """

    kind = SANDBOX_SERVICE

    def __init__(
        self,
        config: SandboxConfig,
        name: str,
        instance_id: str,
        *,
        backend: SandboxBackend | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self._config = config
        try:
            self._backend = backend or find_backend(config.backend)(config.options)
        except ValueError as error:
            raise ConfigError(str(error), path=f"sandboxes.{name}") from None
        self._life = Life(instance_id)
        self._timers = Timers(clock or Clock())
        self._tasks: list[asyncio.Task[None]] = []
        self._servicer: SandboxServicer | None = None
        self._sandboxes: Sandboxes | None = None
        self._snapshots: Snapshots | None = None

    @property
    def meta(self) -> Mapping[str, str]:
        """For the registry: the maximum number of sandboxes, as `capacity`, and the backend."""
        return {"capacity": str(self._config.places), "backend": self._backend.name}

    def servicers(self) -> Mapping[str, object]:
        """The SandboxService servicer, once the service is open."""
        assert self._servicer is not None
        return {SANDBOX_SERVICE: self._servicer}

    async def open(self, directory: PeerDirectory) -> None:
        """Opens the backend and ends what an earlier process of this instance left.

        Raises ConfigError.
        """
        config, backend = self._config, self._backend
        self._life.begin()
        await backend.open()
        left = metrics.SANDBOXES_LEFT.labels(self.name, "earlier")
        for mark in self._life.left:
            left.inc(await backend.end_leftovers(mark))
        capabilities = type(backend.capabilities)()
        capabilities.CopyFrom(backend.capabilities)
        capabilities.adapts = config.adapts
        offer = Offer(backend.name, backend.default_image, capabilities, config.limits())
        admission = Admission(
            Width(config.places, processors=usable_processors()), config.max_waiting
        )
        places = Places(admission, self.name, pressure if config.adapts else None)
        self._snapshots = Snapshots(backend, self._timers)
        self._sandboxes = Sandboxes(
            self.name,
            self.instance_id,
            mark=self._life.mark,
            config=config,
            backend=backend,
            offer=offer,
            timers=self._timers,
            places=places,
            folder=self._life.folder,
            relay_to=partial(relay_target, directory),
        )
        self._servicer = SandboxServicer(
            self._sandboxes, self._snapshots, backend, config, self._timers.clock
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._timers.run()), loop.create_task(places.follow())]

    def drain(self, seconds: float) -> None:
        """Starts no further sandbox; existing sandboxes can be used until the end."""
        if self._sandboxes is not None:
            self._sandboxes.start_no_more()

    async def let_go(self) -> None:
        """Rejects new sandboxes, and returns when there is none left."""
        if self._sandboxes is not None:
            self._sandboxes.start_no_more()
            await self._sandboxes.until_empty()

    async def close(self) -> None:
        """Ends all sandboxes and snapshots, then the backend."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                if self._sandboxes is not None:
                    await self._sandboxes.close()
                if self._snapshots is not None:
                    await self._snapshots.close()
        await cancel_and_wait(*self._tasks)
        self._tasks = []
        await self._backend.close()
        self._life.end()
