"""What becomes of a release: upgraded, drained and collected in, as docs/how-to/deploy.md has
it.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends.kubernetes import KubernetesRegistry
from gymmesh_discovery.config import KubernetesConfig
from tests.deploy.chart import RELEASE, Chart
from tests.kubernetes.cluster import ADMIN, NODE, ApiError, Cluster
from tests.kubernetes.kubelet import Kubelet, kubelet
from tests.kubernetes.release import Object, Release, comes
from tests.unit.runtime.probe import until

LONG_S: Final = 90.0
AGENT: Final = "gymmesh.agent.v1.AgentService"
AGENT_PODS: Final = {"app.kubernetes.io/component": "agent"}
JOB: Final = "mesh-gymmesh-collect-first"


@pytest.fixture
def release(furnished: Cluster, chart: Chart, namespace: str) -> Release:
    return Release(furnished, chart, namespace)


def uid_of(found: Object) -> str:
    uid: str = found["metadata"]["uid"]
    return uid


async def pods_of(release: Release) -> dict[str, set[str]]:
    """The pods that are to stay, by component."""
    found: dict[str, set[str]] = {}
    for one in await release.pods({}):
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        found.setdefault(component, set()).add(uid_of(one))
    return found


# ---- upgrades


async def test_an_upgrade_replaces_one_service_and_leaves_no_moment_without_it(
    release: Release, tmp_path: Any
) -> None:
    two = ("--set", "agents.tool_loop.replicas=2")
    spare = ("--set", "environments.spare.config.use=mcqa")
    async with kubelet(release.cluster, release.namespace) as nodes:
        await release.install("external-vllm", *two, *spare)
        before = await pods_of(release)
        (tmp_path / "token").write_text(ADMIN)
        backend = KubernetesRegistry(
            KubernetesConfig(
                server=release.cluster.server,
                ca_file=str(release.cluster.ca_file),
                token_file=str(tmp_path / "token"),
                namespace=release.namespace,
            )
        )
        await backend.open()
        try:
            await until(lambda: len(healths(backend)) == 2, LONG_S)
            await replaced(release, backend, nodes, (*two, *spare))
        finally:
            await backend.close()
        after = await pods_of(release)
        assert not after.pop("agent") & before.pop("agent")
        # The mesh file is one; a change of a service's part is that service's alone.
        assert after == before
        await it_goes_with_all_it_had(release, "spare", two)
        await release.uninstall()


def healths(backend: KubernetesRegistry) -> dict[str, int]:
    """How the agents are, by id."""
    return {one.id: one.health for one in backend.snapshot(AGENT, "tool_loop")[1]}


async def replaced(
    release: Release, backend: KubernetesRegistry, nodes: Kubelet, values: tuple[str, ...]
) -> None:
    """Upgrades, and follows what callers see: two that serve at every moment, the old ones draining
    until their pods end.
    """
    old = healths(backend)
    watcher = backend.subscribe()
    nodes.lingers = lambda pod: True
    config = ("--set", "agents.tool_loop.config.max_steps=6")
    async with asyncio.timeout(LONG_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(release.upgrade("external-vllm", *values, *config))
        seen = dict(old)
        while {seen[one] for one in old} != {pb.HEALTH_DRAINING}:
            change = await watcher.next()
            assert change is not None
            if change.instance.service == AGENT:
                seen[change.instance.id] = change.instance.health
            assert list(seen.values()).count(pb.HEALTH_SERVING) >= 2, seen
        nodes.lingers = lambda pod: False
    watcher.close()
    await until(lambda: list(healths(backend).values()) == [pb.HEALTH_SERVING] * 2, LONG_S)
    assert not healths(backend).keys() & old.keys()


async def test_an_upgrade_passes_a_job_that_collects(release: Release, tmp_path: Any) -> None:
    """The API server refuses every change of a Job's pods: one that is as it was stays and goes on,
    and one that is not is followed by another, which goes on with the same volume.
    """
    pinned = ("--set", "image.tag=1.2.3")
    later = Release(release.cluster, release.chart.later(tmp_path), release.namespace)
    async with kubelet(release.cluster, release.namespace):
        await release.install("small", *pinned)
        pod = await comes(functools.partial(one_pod, release, "collector"))
        (job,) = await release.get("jobs")
        await later.upgrade("small", *pinned, "--set", "agents.tool_loop.config.max_steps=6")
        (same,) = await release.get("jobs")
        assert uid_of(same) == uid_of(job)
        assert uid_of(await comes(functools.partial(one_pod, release, "collector"))) == uid_of(pod)
        await later.upgrade("small", "--set", "image.tag=1.2.4")
        had = frozenset({uid_of(pod)})
        following = await comes(functools.partial(one_pod, release, "collector", had))
        (other,) = await release.get("jobs")
        assert other["metadata"]["name"] != job["metadata"]["name"]
        assert following["spec"]["volumes"][0] == pod["spec"]["volumes"][0]
        await release.uninstall()


async def it_goes_with_all_it_had(release: Release, name: str, values: tuple[str, ...]) -> None:
    """A service that the values do not have any more."""
    assert any(name in one for one in await release.objects())
    await release.upgrade("external-vllm", *values)
    left: list[str] = []

    async def gone() -> bool:
        left[:] = [one for one in await release.objects() if name in one]
        return not left

    try:
        await comes(gone)
    except TimeoutError:
        pytest.fail(f"these are left: {left}")


async def test_what_helm_test_runs_is_run_and_removed(release: Release) -> None:
    async with kubelet(release.cluster, release.namespace):
        await release.install("small")
        async with asyncio.TaskGroup() as tasks:
            tests = tasks.create_task(release.helm("test", RELEASE))
            pod = await comes(functools.partial(one_pod, release, "test"))
            await tell(release, pod, {"phase": "Succeeded", "containerStatuses": [ended(pod, 0)]})
        assert "Phase:          Succeeded" in tests.result()

        async def gone() -> bool:
            return await release.get("pods", {"app.kubernetes.io/component": "test"}) == []

        await comes(gone)
        await release.uninstall()


async def one_pod(release: Release, component: str, but: frozenset[str] = frozenset()) -> Any:
    """The pod of a component that runs, other than those."""
    found = [
        one
        for one in await release.pods({"app.kubernetes.io/component": component})
        if one["status"]["phase"] == "Running" and uid_of(one) not in but
    ]
    return found[0] if found else None


def ended(pod: Object, code: int) -> Object:
    """What a kubelet says of a container that ended."""
    container = pod["spec"]["containers"][0]
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "none",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": code}},
    }


async def tell(release: Release, pod: Object, status: Object) -> None:
    """Says as a kubelet does how a pod is."""
    path = f"{release.path('pods', pod['metadata']['name'])}/status"
    await release.cluster.ask("PATCH", path, {"status": status}, "merge")


# ---- a node's maintenance


async def test_a_node_is_drained_one_pod_of_a_service_at_a_time(release: Release) -> None:
    """docs/how-to/deploy.md's `kubectl drain` waits, by the budget, for the pod that follows."""
    # On the one node there is, other tests may have pods, too.
    only = "--pod-selector=drained=agents"
    drain = ("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", only)
    values = ("agents.tool_loop.replicas=2", "agents.tool_loop.podLabels.drained=agents")

    async def left() -> list[Object]:
        return [one for one in await release.pods(AGENT_PODS) if uid_of(one) in before]

    async def one_is_left() -> Object | None:
        found = await left()
        return found[0] if len(found) == 1 else None

    async with kubelet(release.cluster, release.namespace) as nodes:
        await release.install("small", *(word for one in values for word in ("--set", one)))
        before = {uid_of(one) for one in await release.get("pods", AGENT_PODS)}
        assert len(before) == 2
        nodes.starts = lambda pod: False
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(release.kubectl(*drain, "--timeout=60s"))
                last = await comes(one_is_left)
                path = f"{release.path('pods', last['metadata']['name'])}/eviction"
                eviction = {"metadata": {"name": last["metadata"]["name"]}}
                with pytest.raises(ApiError, match="disruption budget") as refused:
                    await release.cluster.ask("POST", path, eviction)
                assert refused.value.code == 429
                nodes.starts = lambda pod: True  # and on goes the drain
        finally:
            await release.kubectl("uncordon", NODE)
        assert await left() == []
        await release.uninstall()


# ---- collectors


async def test_a_collectors_pod_is_followed_by_another_where_that_may_help(
    release: Release,
) -> None:
    """The Job's rules about pods that fail, as Kubernetes' own Job controller goes by them."""
    async with kubelet(release.cluster, release.namespace):
        await release.install("small")
        pods: list[Object] = []
        # A drained node takes it away; a run ends with failures (3); its usage is wrong (2).
        for code, taken in ((137, True), (3, False), (2, False)):
            had = frozenset(uid_of(one) for one in pods)
            pod = await comes(functools.partial(one_pod, release, "collector", had))
            pods.append(pod)
            disrupted = [{"type": "DisruptionTarget", "status": "True"}] if taken else []
            failed = {
                "phase": "Failed",
                "containerStatuses": [ended(pod, code)],
                "conditions": disrupted,
            }
            await tell(release, pod, failed)
        job = await comes(functools.partial(failed_job, release))
        reasons = {one["type"]: one["reason"] for one in job["status"]["conditions"]}
        assert reasons["Failed"] == "PodFailurePolicy"
        assert job["status"]["failed"] == 2, "the drained node was counted"
        claims = [one["spec"]["volumes"] for one in pods]
        assert claims[0] == claims[1] == claims[2]  # the next goes on with what is there
        await release.uninstall()


async def failed_job(release: Release) -> Any:
    (job,) = await release.get("jobs")
    assert job["metadata"]["name"].startswith(f"{JOB}-")
    conditions = job["status"].get("conditions", [])
    return job if any(one["type"] == "Failed" for one in conditions) else None


async def test_a_schedules_job_can_be_started_by_hand(release: Release) -> None:
    """Its pods know the Job's name, after which the folder of their rows is called."""
    async with kubelet(release.cluster, release.namespace):
        await release.install("external-vllm")
        cronjob = "cronjob/mesh-gymmesh-collect-nightly"
        await release.kubectl("create", "job", "now", f"--from={cronjob}")
        pod = await comes(functools.partial(one_pod, release, "collector"))
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "now"
        await release.kubectl("delete", "job", "now")
        await release.uninstall()
