"""A sandbox that is a pod."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.image_shell.sandbox import ShellSandbox
from gymmesh_sandbox.backends.kubernetes.api import KubernetesApi
from gymmesh_sandbox.backends.kubernetes.ports import call_port
from gymmesh_sandbox.backends.kubernetes.programs import PodProgram, start_in_pod


class PodSandbox(ShellSandbox):
    """A running pod.

    Args:
        name, uid: the pod's.
        container, container_id: the container in which programs run: its name, and the id of its
            current start.
        runs: returns whether the pod is known to run.
        remove: ends the pod.
    """

    def __init__(
        self,
        api: KubernetesApi,
        spec: SandboxSpec,
        *,
        backend: str,
        name: str,
        uid: str,
        container: str,
        container_id: str,
        image: str,
        image_digest: str,
        runs: Callable[[], Awaitable[bool]],
        remove: Callable[[PodSandbox], Awaitable[None]],
    ) -> None:
        super().__init__(spec, backend=backend, image=image, image_digest=image_digest)
        self.name = name
        self.uid = uid
        self.container_id = container_id
        self._container = container
        self._api = api
        self._pod_runs = runs
        self._remove_pod = remove

    async def start_program(self, argv: Sequence[str]) -> PodProgram:
        return await start_in_pod(self._api, self.name, self._container, self.sandbox_id, argv)

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        return await call_port(self._api, self.name, self.sandbox_id, request, max_bytes)

    async def still_runs(self) -> bool:
        return await self._pod_runs()

    async def remove(self) -> None:
        await self._remove_pod(self)
