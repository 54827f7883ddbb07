"""The registry over a real API server: views, watches that break, and who is let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.kubernetes import KubernetesRegistry, problem_of
from gymmesh_discovery.backends.kubernetes.access import find_access
from gymmesh_discovery.backends.kubernetes.client import GoneError, KubernetesClient
from gymmesh_discovery.config import KubernetesConfig
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving
from tests.kubernetes.cluster import ADMIN, NODE, STRANGER, ZONE, ApiError, Cluster
from tests.kubernetes.pods import bury_pod, end_pod, say, service, start_pod
from tests.support.docs import ROOT, read_page
from tests.support.proxy import Proxy
from tests.unit.discovery.kubernetes_slices import MODEL, endpoint, slice_of
from tests.unit.runtime.probe import until
from tests.unit.runtime.probe_service import ProbeService

LONG_S = 90.0  # bounds what must happen, and no more
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"


def config(cluster: Cluster, namespace: str, token: Path, **more: Any) -> KubernetesConfig:
    values: dict[str, Any] = {
        "server": cluster.server,
        "ca_file": str(cluster.ca_file),
        "token_file": str(token),
        "namespace": namespace,
        **more,
    }
    return KubernetesConfig(**values)


@pytest.fixture
def admin(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(ADMIN)
    return path


@asynccontextmanager
async def opened(found: KubernetesConfig) -> AsyncIterator[KubernetesRegistry]:
    backend = KubernetesRegistry(found)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def view(backend: KubernetesRegistry) -> dict[str, int]:
    """Health by address."""
    return {one.address: one.health for one in backend.snapshot("", "")[1]}


async def shows(backend: KubernetesRegistry, expected: Mapping[str, int]) -> None:
    try:
        await until(lambda: view(backend) == expected, LONG_S)
    except AssertionError:
        raise AssertionError(f"{view(backend)}, not {expected}") from None


def bare(namespace: str, *endpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A slice as somebody else than Kubernetes' own controller writes it."""
    found = slice_of(*endpoints, **more)
    labels = found["metadata"]["labels"]
    own = {key: value for key, value in labels.items() if key.startswith("gymmesh.io/")}
    found["metadata"] = {"name": found["metadata"]["name"], "namespace": namespace, "labels": own}
    for one in found["endpoints"]:
        one["targetRef"]["namespace"] = namespace
    return found


S, N, D = pb.HEALTH_SERVING, pb.HEALTH_NOT_SERVING, pb.HEALTH_DRAINING


async def test_slices_that_come_change_and_go(
    cluster: Cluster, namespace: str, admin: Path
) -> None:
    path = SLICES.format(namespace)
    async with opened(config(cluster, namespace, admin)) as backend:
        assert view(backend) == {}
        await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
        await shows(backend, {"10.0.0.7:9400": S})
        for conditions, health in (
            ({"ready": False, "serving": True, "terminating": True}, D),
            ({"ready": False, "serving": False, "terminating": True}, N),
            ({"ready": True}, S),
        ):
            changed = endpoint("10.0.0.7", "u-1") | {"conditions": conditions}
            await cluster.ask("PATCH", f"{path}/one", {"endpoints": [changed]}, "merge")
            await shows(backend, {"10.0.0.7:9400": health})
        two = [endpoint(f"10.0.1.{n}", f"v-{n}") for n in range(1, 4)]
        await cluster.apply(bare(namespace, *two, name="two", called="judge"))
        await shows(backend, {"10.0.0.7:9400": S} | {f"10.0.1.{n}:9400": S for n in range(1, 4)})
        assert {one.id for one in backend.snapshot(MODEL, "judge")[1]} == {
            f"model-judge-v-{n}" for n in range(1, 4)
        }
        unlabelled = bare(namespace, endpoint("10.0.2.1", "w-1"), name="three")
        del unlabelled["metadata"]["labels"]
        await cluster.apply(unlabelled)
        await cluster.ask("DELETE", f"{path}/two")
        await shows(backend, {"10.0.0.7:9400": S})
        await cluster.ask("DELETE", f"{path}/one")
        await shows(backend, {})


async def test_the_pods_of_a_service(cluster: Cluster, namespace: str, admin: Path) -> None:
    """Kubernetes' own controller makes the slices, of a Service and its pods."""
    labels = {"gymmesh.io/contract": "1.0", "gymmesh.io/weight": "2"}
    await cluster.apply(service(namespace, "policy", "model", "policy", **labels))
    async with opened(config(cluster, namespace, admin)) as backend:
        first = await start_pod(cluster, namespace, "policy", "policy-0", ip="10.1.0.1")
        second = await start_pod(cluster, namespace, "policy", "policy-1", ip="10.1.0.2", port=9500)
        await shows(backend, {"10.1.0.1:9400": S, "10.1.0.2:9500": S})
        instance, _ = sorted(backend.snapshot(MODEL, "policy")[1], key=lambda one: one.address)
        assert instance == pb.Instance(
            id=f"model-policy-{first}",
            service=MODEL,
            name="policy",
            address="10.1.0.1:9400",
            contract_version="1.0",
            meta={"pod": "policy-0", "kubernetes_service": "policy"},
            weight=2,
            locality=pb.Locality(zone=ZONE, host=NODE),
            health=S,
        )
        await say(cluster, namespace, "policy-1", ready=False)
        await shows(backend, {"10.1.0.1:9400": S, "10.1.0.2:9500": N})
        await say(cluster, namespace, "policy-1", ready=True)
        await shows(backend, {"10.1.0.1:9400": S, "10.1.0.2:9500": S})
        await end_pod(cluster, namespace, "policy-1")
        await shows(backend, {"10.1.0.1:9400": S, "10.1.0.2:9500": D})
        await say(cluster, namespace, "policy-1", ready=False)
        await shows(backend, {"10.1.0.1:9400": S, "10.1.0.2:9500": N})
        await bury_pod(cluster, namespace, "policy-1")
        await shows(backend, {"10.1.0.1:9400": S})
        # The next pod of that name is another instance.
        third = await start_pod(cluster, namespace, "policy", "policy-1", ip="10.1.0.3")
        await shows(backend, {"10.1.0.1:9400": S, "10.1.0.3:9400": S})
        assert len({first, second, third}) == 3
        path = f"/api/v1/namespaces/{namespace}/services/policy"
        await cluster.ask("DELETE", path)
        await shows(backend, {})


async def test_a_view_of_many(cluster: Cluster, namespace: str, admin: Path) -> None:
    """More slices than a page holds, and more endpoints than aiohttp takes for a line."""
    large = [endpoint(f"10.2.{n // 250}.{n % 250 + 1}", f"u-{n}") for n in range(1000)]
    await cluster.apply(bare(namespace, *large, name="large"))
    small = [
        bare(namespace, endpoint(f"10.3.{n // 250}.{n % 250 + 1}", f"s-{n}"), name=f"small-{n}")
        for n in range(520)
    ]
    limit = asyncio.Semaphore(8)

    async def apply(one: dict[str, Any]) -> None:
        async with limit:
            await cluster.apply(one)

    await asyncio.gather(*map(apply, small))
    async with opened(config(cluster, namespace, admin)) as backend:
        await until(lambda: len(view(backend)) == 1520, LONG_S)
        patch = {"metadata": {"labels": {"gymmesh.io/weight": "9"}}}
        await cluster.ask("PATCH", f"{SLICES.format(namespace)}/large", patch, "merge")
        await until(
            lambda: sum(one.weight == 9 for one in backend.snapshot("", "")[1]) == 1000, LONG_S
        )


async def test_the_api_server_restarts(
    cluster: Cluster, namespace: str, admin: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last view serves, its age grows, and what happened meanwhile is seen afterwards."""
    path = SLICES.format(namespace)
    await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
    async with opened(config(cluster, namespace, admin)) as backend:
        await shows(backend, {"10.0.0.7:9400": S})
        await asyncio.to_thread(cluster.kill, "kube-apiserver")
        await until(lambda: backend.age_s() > 1.0, LONG_S)
        assert view(backend) == {"10.0.0.7:9400": S}
        assert "cannot be reached" in caplog.text
        assert "still uses the last list (instances: 1)" in caplog.text
        await asyncio.to_thread(cluster.start_api)
        await cluster.apply(bare(namespace, endpoint("10.0.0.8", "u-2"), name="two"))
        await cluster.ask("DELETE", f"{path}/one")
        await shows(backend, {"10.0.0.8:9400": S})
        assert backend.age_s() == 0.0
        assert "is reachable again after" in caplog.text


async def test_a_version_that_is_gone(cluster: Cluster, namespace: str, admin: Path) -> None:
    """410 for a watch: the API server keeps the changes of some minutes alone."""
    found = config(cluster, namespace, admin)
    client = KubernetesClient(found, find_access(found))
    try:
        version, _ = await client.slices()
        await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
        await cluster.forget()
        # A new life of the API server remembers no more than etcd does.
        await asyncio.to_thread(cluster.kill, "kube-apiserver")
        await asyncio.to_thread(cluster.start_api)
        with pytest.raises(GoneError):
            async with client.watch(version) as events:
                assert [event async for event in events] == []
    finally:
        await client.close()


async def test_a_cluster_that_comes_back_from_a_backup(
    cluster: Cluster, namespace: str, admin: Path
) -> None:
    """It is behind, and a watch from what it has not reached hears nothing: all is listed anew."""
    await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
    await asyncio.to_thread(cluster.back_up)
    async with opened(config(cluster, namespace, admin)) as backend:
        await shows(backend, {"10.0.0.7:9400": S})
        await cluster.apply(bare(namespace, endpoint("10.0.0.8", "u-2"), name="two"))
        for weight in range(1, 100):  # so that it has much to catch up
            patch = {"metadata": {"labels": {"gymmesh.io/weight": str(weight)}}}
            await cluster.ask("PATCH", f"{SLICES.format(namespace)}/two", patch, "merge")
        await shows(backend, {"10.0.0.7:9400": S, "10.0.0.8:9400": S})
        await asyncio.to_thread(cluster.restore)
        await shows(backend, {"10.0.0.7:9400": S})
        await cluster.ask("DELETE", f"{SLICES.format(namespace)}/one")
        await shows(backend, {})


async def test_a_network_that_goes_silent(cluster: Cluster, namespace: str, admin: Path) -> None:
    """Nothing says that the connection is dead; a watch has a bound of its own."""
    await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
    async with Proxy(cluster.port) as proxy:
        found = config(cluster, namespace, admin, server=f"https://{proxy.address}", wait_s=2)
        async with opened(found) as backend:
            await shows(backend, {"10.0.0.7:9400": S})
            proxy.mute()
            await cluster.apply(bare(namespace, endpoint("10.0.0.8", "u-2"), name="two"))
            await until(lambda: backend.age_s() > 0.0, LONG_S)
            assert view(backend) == {"10.0.0.7:9400": S}
            proxy.heal()
            await shows(backend, {"10.0.0.7:9400": S, "10.0.0.8:9400": S})


async def test_who_is_let_in(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    token = tmp_path / "wrong"
    token.write_text("no-such-token")
    problem = await problem_of(config(cluster, namespace, token))
    assert problem is not None
    assert problem.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
    assert problem.message == (
        f"Kubernetes at {cluster.server} rejects the credentials (401: Unauthorized)."
        " Check discovery.kubernetes.token_file and discovery.kubernetes.ca_file"
    )
    async with opened(config(cluster, namespace, token)) as backend:
        assert view(backend) == {}
        await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
        token.write_text(ADMIN)  # replaced, as Kubernetes replaces a pod's
        await shows(backend, {"10.0.0.7:9400": S})
    token.write_text(STRANGER)
    problem = await problem_of(config(cluster, namespace, token))
    assert problem is not None
    assert '(403: endpointslices.discovery.k8s.io is forbidden: User "stranger"' in problem.message
    problem = await problem_of(config(cluster, namespace, token, ca_file=""))
    assert problem is not None
    assert "certificate verify failed" in problem.message
    token.write_text(ADMIN)
    problem = await problem_of(config(cluster, namespace, token, selector="in in in"))
    assert problem is not None
    assert "Check discovery.kubernetes.selector" in problem.message


async def test_a_pods_account_needs_no_more_than_the_page_says(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The Role of docs/how-to/kubernetes.md, and a token as a pod gets it."""
    page = read_page(ROOT / "docs" / "how-to" / "kubernetes.md")
    documents = list(yaml.safe_load_all(page.files()["rbac.yaml"]))
    for one in documents:
        one["metadata"]["namespace"] = namespace
        for subject in one.get("subjects", []):
            subject["namespace"] = namespace
        await cluster.apply(one)
    account, role, _ = documents
    assert role["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        }
    ]
    token = tmp_path / "token"
    token.write_text(await cluster.token_of(namespace, account["metadata"]["name"]))
    await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
    async with opened(config(cluster, namespace, token)) as backend:
        await shows(backend, {"10.0.0.7:9400": S})
        await cluster.apply(bare(namespace, endpoint("10.0.0.8", "u-2"), name="two"))
        await shows(backend, {"10.0.0.7:9400": S, "10.0.0.8:9400": S})
        # What is elsewhere is none of its business.
        problem = await problem_of(config(cluster, "kube-system", token))
        assert problem is not None
        assert "403" in problem.message
        # The account is gone, and its token with it; the view stays.
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account['metadata']['name']}"
        await cluster.ask("DELETE", path)


async def test_the_manifests_of_the_page(cluster: Cluster, namespace: str) -> None:
    """The API server takes them as they are."""
    files = read_page(ROOT / "docs" / "how-to" / "kubernetes.md").files()
    for name in ("rbac.yaml", "deploy-model.yaml", "deploy-agent.yaml"):
        for one in yaml.safe_load_all(files[name]):
            one["metadata"]["namespace"] = namespace
            for subject in one.get("subjects", []):
                subject["namespace"] = namespace
            await cluster.apply(one)
    # Its pods were made, by the controllers that make them.
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with asyncio.timeout(LONG_S):
        while not (await cluster.ask("GET", path))["items"]:  # noqa: ASYNC110  # no event for it
            await asyncio.sleep(0.1)


async def test_a_service_outside_registers_beside(
    cluster: Cluster, namespace: str, admin: Path
) -> None:
    """A discovery service over Kubernetes shows its callers both."""
    backend = KubernetesRegistry(config(cluster, namespace, admin))
    quiet = ServeOptions(metrics_port=None, drain_s=0.5)
    async with serving([DiscoveryService("registry-0", backend)], quiet) as central:
        address = central.instance.address
        options = ServeOptions(metrics_port=None, drain_s=0.5, discovery_address=address)
        await cluster.apply(bare(namespace, endpoint("10.0.0.7", "u-1"), name="one"))
        async with serving(ProbeService("outside"), options) as probe:
            directory = PeerDirectory()
            peer: Any = directory.plain_peer(address, DiscoveryService.kind)
            await shows(backend, {"10.0.0.7:9400": S, probe.instance.address: S})
            page = await peer.ListInstances(pb.ListInstancesRequest(), timeout=10)
            assert [one.id for one in page.instances] == ["model-policy-u-1", "outside"]
            await until(lambda: len(probe.directory.serving(MODEL, "policy")) == 2, LONG_S)
            await directory.close()
        await shows(backend, {"10.0.0.7:9400": S})


async def test_kubernetes_takes_no_loopback_address(cluster: Cluster, namespace: str) -> None:
    """Why the tests that call what is found need another one."""
    with pytest.raises(ApiError, match="loopback"):
        await cluster.apply(bare(namespace, endpoint("127.0.0.1", "u-1")))
