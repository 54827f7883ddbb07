"""The chart in a cluster: Helm and kubectl at work in a namespace, and what is there afterwards."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tests.deploy.chart import RELEASE, Chart, Rendered
from tests.kubernetes.cluster import Cluster

BOUND_S: Final = 90.0
# What says nothing of who made it, and goes by itself.
_PASSING: Final = ("events", "events.events.k8s.io")
_ROOTS: Final = {
    "pods": "/api/v1",
    "services": "/api/v1",
    "configmaps": "/api/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "poddisruptionbudgets": "/apis/policy/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "servicemonitors": "/apis/monitoring.coreos.com/v1",
    "scaledobjects": "/apis/keda.sh/v1alpha1",
}
Object = dict[str, Any]


class Refused(Exception):
    """Helm or kubectl ended with an error; the text is what it said."""


class Release:
    """A release of the chart in one namespace. Methods raise Refused."""

    def __init__(self, cluster: Cluster, chart: Chart, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.chart = chart

    # ---- Helm

    def render(self, name: str, *more: str) -> Rendered:
        """What Helm makes of a value file for this namespace."""
        return self.chart.render(name, "--namespace", self.namespace, *more)

    async def install(self, name: str, *more: str) -> None:
        """Installs a value file, and waits until Helm takes all of it for ready."""
        await self.helm("install", RELEASE, *self._source(name), "--wait", *more)

    async def upgrade(self, name: str, *more: str) -> None:
        """The same for another state of the values."""
        await self.helm("upgrade", RELEASE, *self._source(name), "--wait", *more)

    async def uninstall(self) -> None:
        """Removes it."""
        await self.helm("uninstall", RELEASE)

    async def helm(self, *arguments: str | Path) -> str:
        """Helm, in this namespace."""
        where = ["--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.namespace]
        done = await asyncio.to_thread(self.chart.run, *arguments, *where)
        return _said(done)

    def _source(self, name: str) -> list[str | Path]:
        return [self.chart.path, "--values", self.chart.values(name), "--timeout", f"{BOUND_S}s"]

    # ---- kubectl

    async def kubectl(self, *arguments: str, given: str = "") -> str:
        """kubectl, in this namespace."""
        home = self.cluster.kubeconfig
        where = [f"--kubeconfig={home}", f"--cache-dir={home.parent / 'kubectl'}"]
        program = str(self.chart.helm.parent / "kubectl")

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, *where, "--namespace", self.namespace, *arguments],
                input=given, capture_output=True, text=True, timeout=BOUND_S, check=False,
            )  # fmt: skip

        return _said(await asyncio.to_thread(run))

    # ---- what is there

    def path(self, kind: str, name: str = "") -> str:
        """Where the API has a kind, or one object of it."""
        path = f"{_ROOTS[kind]}/namespaces/{self.namespace}/{kind}"
        return f"{path}/{name}" if name else path

    async def get(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """The objects of a kind that have such labels."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        query = urlencode({"labelSelector": selector})
        found: list[Object] = (await self.cluster.ask("GET", f"{self.path(kind)}?{query}"))["items"]
        return found

    async def pods(self, labels: Mapping[str, str]) -> list[Object]:
        """The pods with such labels that are not asked to end."""
        return [
            one for one in await self.get("pods", labels)
            if "deletionTimestamp" not in one["metadata"]
        ]  # fmt: skip

    async def objects(self) -> set[str]:
        """Everything in the namespace, of whatever kind, as KIND/NAME."""
        listed = await self.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name")
        kinds = [one for one in listed.split() if one not in _PASSING]
        found = await self.kubectl("get", ",".join(kinds), "--ignore-not-found", "-o", "name")
        return set(found.split())


def _said(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode != 0:
        raise Refused(done.stderr or done.stdout)
    return done.stdout


async def comes(what: Callable[[], Awaitable[Any]]) -> Any:
    """Waits until a question has an answer that is true, and returns that."""
    async with asyncio.timeout(BOUND_S):
        while not (answer := await what()):  # noqa: ASYNC110  # the answer is elsewhere
            await asyncio.sleep(0.2)
        return answer
