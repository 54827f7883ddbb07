"""What a cluster's nodes would say, said for a whole namespace: pods are placed, run and are ready,
volumes are bound, and what is asked to end ends. No container is ever started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.kubernetes.cluster import NODE, ApiError, Cluster
from tests.kubernetes.pods import bury_pod, say

_POLL_S: Final = 0.2
# Somebody was faster: the object is gone, or another one by now.
_OVERTAKEN: Final = (404, 409)
Pod = dict[str, Any]


class Kubelet:
    """The node's part for one namespace.

    Attributes:
        lingers: whether a pod that is asked to end does not end yet.
        starts: whether a pod that was placed becomes ready.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.lingers: Callable[[Pod], bool] = lambda pod: False
        self.starts: Callable[[Pod], bool] = lambda pod: True
        self._cluster = cluster
        self._namespace = namespace
        self._addresses = (f"10.9.{n // 250}.{n % 250 + 1}" for n in itertools.count())

    async def follow(self) -> None:
        """Does what is to be done, again and again."""
        space = f"/api/v1/namespaces/{self._namespace}"
        while True:
            for pod in (await self._cluster.ask("GET", f"{space}/pods"))["items"]:
                with _overtaken():
                    await self._take(pod)
            claims = f"{space}/persistentvolumeclaims"
            for claim in (await self._cluster.ask("GET", claims))["items"]:
                if claim["status"]["phase"] == "Pending":
                    path = f"{claims}/{claim['metadata']['name']}/status"
                    bound = {"status": {"phase": "Bound"}}
                    with _overtaken():
                        await self._cluster.ask("PATCH", path, bound, "merge")
            await asyncio.sleep(_POLL_S)

    async def _take(self, pod: Pod) -> None:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            if not self.lingers(pod):
                await bury_pod(self._cluster, self._namespace, name)
        elif "nodeName" not in pod["spec"]:
            await self._place(name)
        elif pod["status"]["phase"] == "Pending" and self.starts(pod):
            await say(self._cluster, self._namespace, name, ready=True, ip=next(self._addresses))

    async def _place(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        await self._cluster.ask("POST", path, {"metadata": {"name": name}, "target": target})


@contextlib.contextmanager
def _overtaken() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code not in _OVERTAKEN:
            raise


@asynccontextmanager
async def kubelet(cluster: Cluster, namespace: str) -> AsyncIterator[Kubelet]:
    """A kubelet that works while the context is open; what goes wrong in it ends the context."""
    one = Kubelet(cluster, namespace)
    async with asyncio.TaskGroup() as tasks:
        follows = tasks.create_task(one.follow())
        yield one
        follows.cancel()
