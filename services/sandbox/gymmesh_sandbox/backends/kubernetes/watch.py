"""The changes of an instance's pods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from gymmesh_sandbox.backends.kubernetes.api import FAILURES, KubernetesApi, shown
from gymmesh_sandbox.backends.kubernetes.status import Pod

_PAUSE_S: Final = 0.5

_LOGGER = logging.getLogger("gymmesh.sandbox.kubernetes")


class PodWatch:
    """Watches the pods of a selector until it is closed.

    Args:
        on_pod: called with each current pod.
        on_gone: called with the name of a pod that no longer exists.
        known: returns the names of the pods that should exist.
    """

    def __init__(
        self,
        api: KubernetesApi,
        *,
        on_pod: Callable[[Pod], None],
        on_gone: Callable[[str], None],
        known: Callable[[], Collection[str]],
    ) -> None:
        self._api = api
        self._on_pod = on_pod
        self._on_gone = on_gone
        self._known = known
        self._task: asyncio.Task[None] | None = None

    def start(self, selector: str) -> None:
        """Starts to watch; call it once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow(selector))

    async def close(self) -> None:
        """Stops watching."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self, selector: str) -> None:
        while True:
            try:
                before = set(self._known())
                found = await self._api.pods(selector)
                names = set()
                for pod in found.items or ():
                    names.add(pod.metadata.name)
                    self._on_pod(pod)
                for name in before - names:  # it ended while nothing was followed
                    self._on_gone(name)
                async for event in self._api.watch(selector, found.metadata.resource_version):
                    if event.type == "ERROR":  # the version is too old
                        break
                    if event.type == "DELETED":
                        self._on_gone(event.object.metadata.name)
                    else:
                        self._on_pod(event.object)
            except (*FAILURES, msgspec.MsgspecError) as error:
                # The pods run on while the API server is away.
                _LOGGER.debug("the pods cannot be watched: %s", shown(str(error)))
            await asyncio.sleep(_PAUSE_S)
