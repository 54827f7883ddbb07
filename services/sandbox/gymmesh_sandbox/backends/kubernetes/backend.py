"""The backend for Kubernetes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError, explained
from gymmesh_runtime.kubernetes import Access, find_api_server
from gymmesh_sandbox.backends.base import SandboxBackend, SandboxSpec
from gymmesh_sandbox.backends.kubernetes import manifest, status
from gymmesh_sandbox.backends.kubernetes.api import (
    FAILURES,
    ApiError,
    KubernetesApi,
    api_error,
    shown,
)
from gymmesh_sandbox.backends.kubernetes.claims import CLAIM_VERSION
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from gymmesh_sandbox.backends.kubernetes.pods import ClaimedPods, NewPods, PodSource
from gymmesh_sandbox.backends.kubernetes.sandbox import PodSandbox
from gymmesh_sandbox.backends.kubernetes.status import Pod
from gymmesh_sandbox.backends.kubernetes.watch import PodWatch

_LOGGER = logging.getLogger("gymmesh.sandbox.kubernetes")

# The first whose API server closes a program's standard input on its own.
_OLDEST: Final = 30
_REMOVE_S: Final = 20.0
_CLOSE_S: Final = 30.0
_POLL_S: Final = 0.2
_UNREADABLE: Final = (*FAILURES, msgspec.MsgspecError, ConfigError)


class KubernetesBackend(SandboxBackend):
    """Runs each sandbox as a pod."""

    name = "kubernetes"
    start_cost_bytes = 1 << 20  # on this machine; the pod's own is the cluster's

    def __init__(self, options: Mapping[str, Any]) -> None:
        try:
            self._options = msgspec.convert(dict(options), KubernetesOptions)
        except msgspec.ValidationError as error:
            option, problem = explained(error, KubernetesOptions)
            raise ValueError(f"{option}: {problem}" if option else problem) from None
        self.default_image = self._options.default_image
        self._api: KubernetesApi | None = None
        self._sandboxes: dict[str, PodSandbox] = {}
        self._starting: dict[str, asyncio.Future[Pod | None]] = {}
        self._images: dict[str, str] = {}

    async def open(self) -> None:
        access = find_api_server(self._options, "options")
        self._api = api = KubernetesApi(access)
        try:
            self.version, minor = await api.version()
            if minor and minor < _OLDEST:
                raise ConfigError(
                    f"Kubernetes at {api.address} has the version {self.version}; this backend"
                    f" needs 1.{_OLDEST} or newer.",
                    path="backend",
                )
            self._pods = _source(api, self._options, self.name)
            await self._pods.open()
            self._owner = await _own_pod(api, access)
        except (*FAILURES, msgspec.MsgspecError) as error:
            await self.close()
            raise ConfigError(
                f"Kubernetes at {api.address} cannot be used for sandboxes in the namespace"
                f" '{api.namespace}': {shown(str(error)) or 'no answer'}."
                f" {self._what_to_do(error)}",
                path="options",
            ) from None
        except ConfigError:
            await self.close()
            raise
        self.capabilities = self._pods.capabilities
        self._images |= dict.fromkeys(self._pods.images(), "")
        self._watch = PodWatch(
            api,
            on_pod=self._pod_changed,
            on_gone=self._pod_gone,
            known=lambda: self._sandboxes.keys() | self._starting.keys(),
        )

    async def end_leftovers(self, instance_id: str) -> int:
        api = self._opened()
        try:
            return await self._pods.release_all(instance_id)
        except _UNREADABLE as error:
            raise api_error(error, api.address) from None

    async def images(self) -> Sequence[sandbox_pb2.Image]:
        return [
            sandbox_pb2.Image(name=name, digest=digest)
            for name, digest in sorted(self._images.items())
        ]

    async def create(self, spec: SandboxSpec) -> PodSandbox:
        api = self._opened()
        self._pods.check(spec)
        self._watch.start(self._pods.selector(spec.instance_id))
        pod: Pod | None = None
        sandbox: PodSandbox | None = None
        try:
            pod = await self._pods.obtain(spec, self._owner)
            pod = await self._started(pod, spec)
            sandbox = self._sandbox(pod, spec)
            self._sandboxes[sandbox.name] = sandbox
            await sandbox.prepare()
        except BaseException as error:
            await asyncio.shield(self._remove(spec.sandbox_id, pod))
            if sandbox is not None:
                self._sandboxes.pop(sandbox.name, None)
                await sandbox.end()
            if isinstance(error, _UNREADABLE):
                raise api_error(error, api.address) from None
            raise
        self._images[sandbox.image] = sandbox.image_digest
        return sandbox

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                ending = [sandbox.end() for sandbox in tuple(self._sandboxes.values())]
                await asyncio.gather(*ending, return_exceptions=True)
                if hasattr(self, "_watch"):
                    await self._watch.close()
        except TimeoutError:
            _LOGGER.warning(
                "not every pod has ended; the next start of this instance ends the rest"
            )
        finally:
            await api.close()

    def _opened(self) -> KubernetesApi:
        assert self._api is not None, "call open() first"
        return self._api

    def _sandbox(self, pod: Pod, spec: SandboxSpec) -> PodSandbox:
        assert isinstance(spec.root, str)
        api, name = self._opened(), pod.metadata.name
        return PodSandbox(
            api,
            spec,
            backend=self.name,
            name=name,
            uid=pod.metadata.uid,
            container=pod.main,
            container_id=pod.container.container_id,
            image=spec.root,
            image_digest=status.digest_of(pod),
            runs=lambda: _runs(api, name),
            remove=lambda one: self._end(api, one, pod),
        )

    async def _started(self, made: Pod, spec: SandboxSpec) -> Pod:
        """The running pod. Raises MeshError if it will never run."""
        assert isinstance(spec.root, str)
        refuse = self._options.unschedulable == "refuse"
        pod, name = made, made.metadata.name
        while not status.runs(pod):
            problem = status.start_problem(pod, spec.root, refuse_unschedulable=refuse)
            if problem is not None:
                raise problem
            changed: asyncio.Future[Pod | None] = asyncio.get_running_loop().create_future()
            self._starting[name] = changed
            try:
                # A change between the two is found here.
                found = await self._opened().pod(name)
                if found == pod:
                    found = await changed
            finally:
                del self._starting[name]
            if found is None:
                raise status.deleted_at_start(spec.root)
            pod = found
        return pod

    async def _end(self, api: KubernetesApi, sandbox: PodSandbox, pod: Pod) -> None:
        self._sandboxes.pop(sandbox.name, None)
        await self._remove(sandbox.sandbox_id, pod, api)

    async def _remove(
        self, sandbox_id: str, pod: Pod | None, api: KubernetesApi | None = None
    ) -> None:
        """Releases a sandbox's pod and waits, for a while, until it is gone.

        Args:
            pod: None: it is unknown whether there is one.
        """
        api = api or self._opened()
        uid = "" if pod is None else pod.metadata.uid
        name = manifest.pod_name(sandbox_id) if pod is None else pod.metadata.name
        problem = "the pod's node did not confirm the end of the pod"
        try:
            async with asyncio.timeout(_REMOVE_S):
                while True:
                    try:
                        await self._pods.release(sandbox_id, uid)
                        break
                    except _UNREADABLE as error:
                        problem = shown(str(error)) or "no answer"
                        await asyncio.sleep(_POLL_S)
                while not await self._is_gone(api, sandbox_id, name, uid):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            _LOGGER.warning(
                "the pod %s is not deleted yet: %s; the next start of this instance deletes it",
                name,
                problem,
            )

    async def _is_gone(self, api: KubernetesApi, sandbox_id: str, name: str, uid: str) -> bool:
        """Whether the pod, or the pod with this uid, no longer exists, and nothing would create
        it again.
        """
        try:
            found = await api.pod(name)
            gone = found is None or uid not in ("", found.metadata.uid)
            return gone and await self._pods.is_released(sandbox_id)
        except _UNREADABLE:
            return False

    def _what_to_do(self, error: BaseException) -> str:
        if self._options.claims and isinstance(error, ApiError) and error.status == 404:
            return f"Install kubernetes-sigs/agent-sandbox with the API version {CLAIM_VERSION}."
        what = "claims and pods" if self._options.claims else "pods"
        return f"Give the service a Role for {what}, or set the option 'server' or 'kubeconfig'."

    def _pod_changed(self, pod: Pod) -> None:
        name = pod.metadata.name
        waiting = self._starting.get(name)
        if waiting is not None and not waiting.done():
            waiting.set_result(pod)
        sandbox = self._sandboxes.get(name)
        if sandbox is None:
            return
        cause = status.lost_cause(pod)
        if cause is None and pod.container.container_id != sandbox.container_id:
            cause = "the sandbox's container was started again, without the sandbox's files"
        if cause is not None:
            sandbox.lose(cause)

    def _pod_gone(self, name: str) -> None:
        waiting = self._starting.get(name)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if (sandbox := self._sandboxes.get(name)) is not None:
            sandbox.lose("its pod was deleted")


def _source(api: KubernetesApi, options: KubernetesOptions, backend: str) -> PodSource:
    if options.claims:
        return ClaimedPods(api, options, backend)
    return NewPods(api, options, backend)


async def _runs(api: KubernetesApi, name: str) -> bool:
    """Whether a pod is known to run."""
    try:
        pod = await api.pod(name)
    except _UNREADABLE:
        return False
    return pod is not None and status.runs(pod) and status.lost_cause(pod) is None


async def _own_pod(api: KubernetesApi, access: Access) -> dict[str, Any] | None:
    """The reference to the service's own pod, if that is in the sandboxes' namespace. With it,
    Kubernetes ends the sandboxes together with the service.
    """
    if access.token_file and "KUBERNETES_SERVICE_HOST" in os.environ and "HOSTNAME" in os.environ:
        pod = await api.pod(os.environ["HOSTNAME"])
        if pod is not None:
            return {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            }
    return None
