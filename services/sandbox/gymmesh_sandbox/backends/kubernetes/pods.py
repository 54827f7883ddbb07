"""Where the pods of sandboxes come from: created for each sandbox, or claimed from a warm pool."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.kubernetes import claims, manifest, status
from gymmesh_sandbox.backends.kubernetes.api import KubernetesApi
from gymmesh_sandbox.backends.kubernetes.claims import Claim
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from gymmesh_sandbox.backends.kubernetes.status import Pod

_T = TypeVar("_T")
_CREATE_S: Final = 20.0
_PAUSE_S: Final = 0.5


class PodSource(ABC):
    """Obtains pods and releases them. Methods raise `api.FAILURES`, and MeshError.

    Args:
        backend: the backend's name, for errors.
    """

    def __init__(self, api: KubernetesApi, options: KubernetesOptions, backend: str) -> None:
        self._api = api
        self._options = options
        self._backend = backend

    @property
    @abstractmethod
    def capabilities(self) -> sandbox_pb2.Capabilities:
        """What the sandboxes can do."""

    @abstractmethod
    async def open(self) -> None:
        """Checks that the API server has everything that will be needed."""

    @abstractmethod
    def selector(self, instance_id: str) -> str:
        """The labels of the pods to watch; other instances' pods may have the same labels."""

    @abstractmethod
    def check(self, spec: SandboxSpec) -> None:
        """Raises MeshError for a sandbox that is impossible."""

    @abstractmethod
    async def obtain(self, spec: SandboxSpec, owner: dict[str, Any] | None) -> Pod:
        """A pod for a sandbox; the pod may not run yet. If this fails, `release` removes what is
        left.
        """

    @abstractmethod
    async def release(self, sandbox_id: str, uid: str) -> None:
        """Requests the end of a sandbox's pod; does nothing if there is none.

        Args:
            uid: the pod's uid; empty: unknown.
        """

    @abstractmethod
    async def is_released(self, sandbox_id: str) -> bool:
        """Whether nothing but the pod itself is left of a released sandbox."""

    @abstractmethod
    async def release_all(self, instance_id: str) -> int:
        """Releases what earlier processes of an instance left; returns the number."""

    def images(self) -> Sequence[str]:
        """The images that are known before a sandbox uses them."""
        return ()


class NewPods(PodSource):
    """Creates a pod for each sandbox."""

    @property
    def capabilities(self) -> sandbox_pb2.Capabilities:
        networks = [sandbox_pb2.NETWORK_KIND_OPEN]
        if self._options.network_policies:
            networks.insert(0, sandbox_pb2.NETWORK_KIND_NONE)
        return sandbox_pb2.Capabilities(
            fetches=self._options.pull != "never",
            memory=True,
            cpu=True,
            ports=True,
            networks=networks,
            process_limits=True,
        )

    async def open(self) -> None:
        await self._api.pods(manifest.INSTANCE)
        if self._options.network_policies:
            await self._api.create_network_policy(manifest.no_network_policy())

    def selector(self, instance_id: str) -> str:
        return manifest.selector(instance_id)

    def check(self, spec: SandboxSpec) -> None:
        manifest.check_spec(spec, self._options, self._backend)

    async def obtain(self, spec: SandboxSpec, owner: dict[str, Any] | None) -> Pod:
        body = manifest.pod_manifest(spec, self._options, owner)
        return await _not_left_half_way(self._api.create_pod(body))

    async def release(self, sandbox_id: str, uid: str) -> None:
        await self._api.delete_pod(manifest.pod_name(sandbox_id), uid)

    async def is_released(self, sandbox_id: str) -> bool:
        return True

    async def release_all(self, instance_id: str) -> int:
        found = (await self._api.pods(manifest.selector(instance_id))).items or []
        for pod in found:
            await self._api.delete_pod(pod.metadata.name, pod.metadata.uid)
        return len(found)


class ClaimedPods(PodSource):
    """Claims a pod from the image's warm pool of kubernetes-sigs/agent-sandbox."""

    @property
    def capabilities(self) -> sandbox_pb2.Capabilities:
        kinds = {"open": sandbox_pb2.NETWORK_KIND_OPEN, "none": sandbox_pb2.NETWORK_KIND_NONE}
        return sandbox_pb2.Capabilities(
            ports=True, networks=[kinds[self._options.claimed_network]], process_limits=True
        )

    async def open(self) -> None:
        await self._api.claims(manifest.INSTANCE)
        await self._api.pods(claims.POD)

    def selector(self, instance_id: str) -> str:
        return claims.POD

    def check(self, spec: SandboxSpec) -> None:
        claims.check_claim(spec, self._options, self._backend)

    async def obtain(self, spec: SandboxSpec, owner: dict[str, Any] | None) -> Pod:
        assert isinstance(spec.root, str)
        body = claims.claim_manifest(spec, self._options, owner, datetime.now(UTC))
        made = await _not_left_half_way(self._api.create_claim(body))
        sandbox = await self._api.claimed(await self._bound(made, spec.root))
        pod = None if sandbox is None else await self._api.pod(sandbox.pod)
        if pod is None:
            raise status.deleted_at_start(spec.root)
        return pod

    async def release(self, sandbox_id: str, uid: str) -> None:
        await self._api.delete_claim(manifest.pod_name(sandbox_id))

    async def is_released(self, sandbox_id: str) -> bool:
        return await self._api.claim(manifest.pod_name(sandbox_id)) is None

    async def release_all(self, instance_id: str) -> int:
        found = await self._api.claims(manifest.selector(instance_id))
        for claim in found:
            await self._api.delete_claim(claim.metadata.name)
        return len(found)

    def images(self) -> Sequence[str]:
        return sorted(self._options.claims)

    async def _bound(self, claim: Claim, image: str) -> str:
        """The name of the sandbox that a claim got, when it is ready. Raises MeshError if the
        claim will get none.
        """
        name = claim.metadata.name
        while True:
            if found := _outcome(claim, image):
                return found
            try:
                async for event in self._api.watch_claim(name, claim.metadata.resource_version):
                    if event.type == "ERROR":  # the version is too old
                        break
                    if event.type == "DELETED":
                        raise status.deleted_at_start(image)
                    if found := _outcome(event.object, image):
                        return found
            except (aiohttp.ClientError, OSError, msgspec.MsgspecError):
                pass  # it is looked at again
            await asyncio.sleep(_PAUSE_S)
            again = await self._api.claim(name)
            if again is None:
                raise status.deleted_at_start(image)
            claim = again


def _outcome(claim: Claim, image: str) -> str:
    problem = claims.claim_problem(claim, image)
    if problem is not None:
        raise problem
    return claims.bound(claim)


async def _not_left_half_way(making: Coroutine[Any, Any, _T]) -> _T:
    """Creates an object completely, even if the caller is cancelled meanwhile, because the
    cleanup runs afterwards.
    """
    task = asyncio.ensure_future(making)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=_CREATE_S)
        if task.done() and not task.cancelled():
            task.exception()
        raise
