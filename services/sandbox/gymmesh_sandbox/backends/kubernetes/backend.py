"""The backend for Kubernetes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.kubernetes import Access, find_api_server
from gymmesh_sandbox.backends.base import SandboxBackend, SandboxSpec
from gymmesh_sandbox.backends.kubernetes import manifest, status
from gymmesh_sandbox.backends.kubernetes.api import FAILURES, KubernetesApi, api_error, shown
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from gymmesh_sandbox.backends.kubernetes.programs import PodPrograms
from gymmesh_sandbox.backends.kubernetes.sandbox import PodSandbox
from gymmesh_sandbox.backends.kubernetes.status import Pod
from gymmesh_sandbox.backends.kubernetes.watch import PodWatch
from gymmesh_sandbox.errors import option_unsupported

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
            raise ValueError(str(error)) from None
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
                    f"Kubernetes at {api.address} is {self.version}; this backend needs"
                    f" 1.{_OLDEST} or newer.",
                    path="backend",
                )
            await api.pods(manifest.INSTANCE)
            self._owner = await _own_pod(api, access)
            if self._options.network_policies:
                await api.create_network_policy(manifest.no_network_policy())
        except (*FAILURES, msgspec.MsgspecError) as error:
            await self.close()
            raise ConfigError(
                f"Kubernetes at {api.address} cannot be used for sandboxes in the namespace"
                f" '{api.namespace}': {shown(str(error)) or 'no answer'}. Give the service a Role"
                " for pods, or set the option 'server' or 'kubeconfig'.",
                path="options",
            ) from None
        except ConfigError:
            await self.close()
            raise
        networks = [sandbox_pb2.NETWORK_KIND_OPEN]
        if self._options.network_policies:
            networks.insert(0, sandbox_pb2.NETWORK_KIND_NONE)
        self.capabilities = sandbox_pb2.Capabilities(
            fetches=self._options.pull != "never",
            memory=True,
            cpu=True,
            networks=networks,
            process_limits=True,
        )
        self._watch = PodWatch(
            api,
            on_pod=self._pod_changed,
            on_gone=self._pod_gone,
            known=lambda: self._sandboxes.keys() | self._starting.keys(),
        )

    async def end_leftovers(self, instance_id: str) -> int:
        api = self._opened()
        try:
            found = (await api.pods(_selector(instance_id))).items or []
            for pod in found:
                await api.delete_pod(pod.metadata.name, pod.metadata.uid)
        except _UNREADABLE as error:
            raise api_error(error, api.address) from None
        return len(found)

    async def images(self) -> Sequence[sandbox_pb2.Image]:
        return [
            sandbox_pb2.Image(name=name, digest=digest)
            for name, digest in sorted(self._images.items())
        ]

    async def create(self, spec: SandboxSpec) -> PodSandbox:
        api = self._opened()
        manifest.check_spec(spec, self._options, self.name)
        body = manifest.pod_manifest(spec, self._options, self._owner)
        name = manifest.pod_name(spec.sandbox_id)
        self._watch.start(_selector(spec.instance_id))
        self._starting[name] = asyncio.get_running_loop().create_future()
        sandbox: PodSandbox | None = None
        try:
            made = await _not_left_half_way(api.create_pod(body))
            pod = await self._started(made, spec)
            sandbox = self._sandbox(pod, spec)
            self._sandboxes[name] = sandbox
            await sandbox.prepare()
        except BaseException as error:
            await asyncio.shield(self._remove(name, ""))
            if sandbox is not None:
                self._sandboxes.pop(name, None)
                await sandbox.end()
            if isinstance(error, _UNREADABLE):
                raise api_error(error, api.address) from None
            raise
        finally:
            self._starting.pop(name).cancel()
        self._images[sandbox.image] = sandbox.image_digest
        return sandbox

    async def delete_snapshot(self, name: str) -> None:
        raise option_unsupported("DeleteSnapshot", self.name)

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
            _LOGGER.warning("not every pod has ended; the next start of this instance ends them")
        finally:
            await api.close()

    def _opened(self) -> KubernetesApi:
        assert self._api is not None, "open comes first"
        return self._api

    def _sandbox(self, pod: Pod, spec: SandboxSpec) -> PodSandbox:
        assert isinstance(spec.root, str)
        api, name = self._opened(), pod.metadata.name
        return PodSandbox(
            PodPrograms(api, name, spec.sandbox_id),
            spec,
            name=name,
            uid=pod.metadata.uid,
            image=spec.root,
            image_digest=status.digest_of(pod),
            runs=lambda: _runs(api, name),
            remove=lambda one: self._end(api, one),
        )

    async def _started(self, made: Pod, spec: SandboxSpec) -> Pod:
        """The pod once it runs. Raises MeshError where it never will."""
        assert isinstance(spec.root, str)
        refuse = self._options.unschedulable == "refuse"
        pod = made
        while not status.runs(pod):
            problem = status.start_problem(pod, spec.root, refuse_unschedulable=refuse)
            if problem is not None:
                raise problem
            changed: asyncio.Future[Pod | None] = asyncio.get_running_loop().create_future()
            self._starting[made.metadata.name] = changed
            # A change between the two is found here.
            found = await self._opened().pod(made.metadata.name)
            if found == pod:
                found = await changed
            if found is None:
                raise status.deleted_at_start(spec.root)
            pod = found
        return pod

    async def _end(self, api: KubernetesApi, sandbox: PodSandbox) -> None:
        self._sandboxes.pop(sandbox.name, None)
        await self._remove(sandbox.name, sandbox.uid, api)

    async def _remove(self, name: str, uid: str, api: KubernetesApi | None = None) -> None:
        """Deletes a pod and waits, for a while, until it is gone."""
        api = api or self._opened()
        problem = "its node does not say that it has ended"
        try:
            async with asyncio.timeout(_REMOVE_S):
                while True:
                    try:
                        await api.delete_pod(name, uid)
                        break
                    except _UNREADABLE as error:
                        problem = shown(str(error)) or "no answer"
                        await asyncio.sleep(_POLL_S)
                while not await _is_gone(api, name, uid):  # noqa: ASYNC110  # no event for it
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            _LOGGER.warning(
                "the pod %s is not gone yet: %s; the next start of this instance ends it",
                name,
                problem,
            )

    def _pod_changed(self, pod: Pod) -> None:
        name = pod.metadata.name
        waiting = self._starting.get(name)
        if waiting is not None and not waiting.done():
            waiting.set_result(pod)
        sandbox = self._sandboxes.get(name)
        if sandbox is not None and (cause := status.lost_cause(pod)) is not None:
            sandbox.lose(cause)

    def _pod_gone(self, name: str) -> None:
        waiting = self._starting.get(name)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if (sandbox := self._sandboxes.get(name)) is not None:
            sandbox.lose("its pod was deleted")


def _selector(instance_id: str) -> str:
    return f"{manifest.INSTANCE}={manifest.label_value(instance_id)}"


async def _not_left_half_way(making: Coroutine[Any, Any, Pod]) -> Pod:
    """Makes a pod, also where the caller is cancelled meanwhile: what ends it comes after it."""
    task = asyncio.ensure_future(making)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=_REMOVE_S)
        if task.done() and not task.cancelled():
            task.exception()
        raise


async def _runs(api: KubernetesApi, name: str) -> bool:
    """Whether a pod is known to run."""
    try:
        pod = await api.pod(name)
    except _UNREADABLE:
        return False
    return pod is not None and status.runs(pod) and status.lost_cause(pod) is None


async def _is_gone(api: KubernetesApi, name: str, uid: str) -> bool:
    """Whether there is no such pod, or another one of its name."""
    try:
        pod = await api.pod(name)
    except _UNREADABLE:
        return False
    return pod is None or uid not in ("", pod.metadata.uid)


async def _own_pod(api: KubernetesApi, access: Access) -> dict[str, Any] | None:
    """The reference to the pod that the service runs in, where it is in the sandboxes' namespace;
    with it Kubernetes ends its sandboxes.
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
