"""The Helm chart on a real API server: taken, installed, listed, found and gone again."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends.kubernetes import KubernetesRegistry, registry
from gymmesh_discovery.backends.kubernetes.access import find_access
from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import specs_of
from gymmesh_runtime.config import load_config
from gymmesh_runtime.contract import CONTRACT_VERSION
from tests.deploy.chart import RELEASE, VALUE_FILES, Chart, Rendered
from tests.kubernetes.cluster import NODE, ZONE, ApiError, Cluster
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.release import Object, Refused, Release, comes
from tests.unit.runtime.probe import until

LONG_S: Final = 60.0
GRPC, HEALTH, GATEWAY, METRICS = 9400, 9401, 9402, 9464
SANDBOXES: Final = "sandboxes"
every_values = pytest.mark.parametrize("name", VALUE_FILES)


@pytest.fixture
def release(furnished: Cluster, chart: Chart, namespace: str) -> Release:
    return Release(furnished, chart, namespace)


# ---- what the API server takes


@every_values
async def test_the_api_server_takes_every_manifest(release: Release, name: str) -> None:
    """A dry run on the server: its schemas, its defaults and its admission."""
    rendered = release.render(name)
    await make_accounts(release, rendered)
    there = [one for one in rendered.manifests if is_elsewhere(one)]
    here = [one for one in rendered.manifests if one not in there]
    said = await release.kubectl(*DRY_RUN, given=yaml.safe_dump_all(here))
    if there:
        where = ("--namespace", SANDBOXES)
        said += await release.kubectl(*DRY_RUN, *where, given=yaml.safe_dump_all(there))
    taken = [line for line in said.splitlines() if line.endswith("(server dry run)")]
    assert len(taken) == len(rendered.manifests), said
    # Nothing of it was really made.
    assert await release.get("deployments") == []


DRY_RUN: Final = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("Deployment", {"replikas": 2}, 'unknown field "spec.replikas"'),
        ("Deployment", {"selector": {"matchLabels": {"a": "b"}}}, "does not match"),
        ("ServiceMonitor", {"endpoints": [{"path": 7}]}, "spec.endpoints[0].path"),
        ("Certificate", {"issuerRef": {}}, "spec.issuerRef.name"),
        ("ScaledObject", {"scaleTargetRef": None}, "spec.scaleTargetRef"),
    ],
)
async def test_what_is_wrong_is_refused(
    release: Release, kind: str, change: dict[str, Any], said: str
) -> None:
    """The dry run does look, at what others define as well."""
    found = release.render("ha").of(kind)[0]
    found["spec"] |= change
    with pytest.raises(Refused) as refused:
        await release.kubectl(*DRY_RUN, given=json.dumps(found))
    assert said in str(refused.value)


@every_values
async def test_pods_keep_to_the_strictest_standard_but_for_the_sandbox(
    release: Release, name: str
) -> None:
    """In a namespace that enforces the Pod Security Standard `restricted`."""
    rendered = release.render(name)
    await make_accounts(release, rendered)
    space = f"/api/v1/namespaces/{release.namespace}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await release.cluster.ask("PATCH", space, {"metadata": {"labels": labels}}, "merge")
    refused = {}
    for one in rendered.workloads():
        # A StatefulSet gives its pods the volumes that it makes.
        claims = [
            {"name": name_of(claim), "persistentVolumeClaim": {"claimName": "any"}}
            for claim in one.manifest["spec"].get("volumeClaimTemplates", [])
        ]
        spec = one.spec | {"volumes": [*one.spec.get("volumes", []), *claims]}
        pod = {"metadata": {"name": one.name, "labels": one.labels}, "spec": spec}
        try:
            await release.cluster.ask("POST", f"{space}/pods?dryRun=All", pod)
        except ApiError as error:
            refused[one.name] = str(error)
    assert refused.keys() == rendered.isolating(), refused
    assert all("violates PodSecurity" in one for one in refused.values()), refused


# ---- installed


@every_values
async def test_it_is_installed_listed_found_and_gone(
    release: Release, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = release.render(name)
    if not rendered.values().get("serviceAccount", {}).get("create", True):
        await make_accounts(release, rendered)
    before = await release.objects()
    async with kubelet(release.cluster, release.namespace):
        await release.install(name)
        there = await release.objects()
        here = [one for one in rendered.manifests if not (is_hook(one) or is_elsewhere(one))]
        assert {key_of(one) for one in here} <= there
        assert await elsewhere(release) == {
            key_of(one) for one in rendered.manifests if is_elsewhere(one)
        }
        pods = await all_run(release, rendered)
        await slices_list_them(release, rendered, pods)
        await budgets_count_them(release, rendered, pods)
        await selectors_meet(release, rendered)
        if any(name_of(one).endswith("-discovery") for one in rendered.of("Role")):
            await discovery_sees_them(release, rendered, pods, tmp_path, monkeypatch)
        await release.uninstall()
        kept = {
            key_of(one)
            for one in rendered.of("PersistentVolumeClaim")
            if one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        }
        assert len(kept) == sum("size" in one for one in storage_of(rendered))
        await is_left(release, before | kept)
        assert not await elsewhere(release)


async def is_left(release: Release, wanted: set[str]) -> None:
    """Waits until nothing else is there."""
    found: set[str] = set()

    async def so() -> bool:
        found.clear()
        found.update(await release.objects())
        return found == wanted

    try:
        await comes(so)
    except TimeoutError:
        pytest.fail(f"left: {found - wanted}; missing: {wanted - found}")


def storage_of(rendered: Rendered) -> list[Object]:
    """What the collectors of a value file store to."""
    return [one["storage"] for one in rendered.values().get("collect", {}).values()]


def is_hook(manifest: Object) -> bool:
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


def is_elsewhere(manifest: Object) -> bool:
    """Whether it is in the namespace of the sandboxes."""
    return bool(manifest["metadata"].get("namespace") == SANDBOXES)


async def elsewhere(release: Release) -> set[str]:
    """What a release has in the namespace of the sandboxes."""
    kinds = "roles,rolebindings,networkpolicies"
    selector = f"app.kubernetes.io/instance={RELEASE}"
    found = await release.kubectl(
        "get", kinds, "--namespace", SANDBOXES, "--selector", selector, "-o", "name"
    )
    return set(found.split())


def key_of(manifest: Object) -> str:
    """As kubectl names an object."""
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = manifest["kind"].lower()
    return f"{kind}.{group}/{name_of(manifest)}" if group else f"{kind}/{name_of(manifest)}"


def name_of(found: Object) -> str:
    name: str = found["metadata"]["name"]
    return name


async def make_accounts(release: Release, rendered: Rendered) -> None:
    """The accounts that pods of the chart name: a pod of an unknown one is refused."""
    for account in sorted({one.spec["serviceAccountName"] for one in rendered.workloads()}):
        await release.kubectl("create", "serviceaccount", account)


async def all_run(release: Release, rendered: Rendered) -> dict[str, list[Object]]:
    """Waits for the pods of each Deployment, as many as there should be; returns them."""
    scaled = {
        one["spec"]["scaleTargetRef"]["name"]: one["spec"]["minReplicas"]
        for one in rendered.of("HorizontalPodAutoscaler")
    }
    pods = {}
    for one in rendered.services():
        # KEDA, which would make more of some, is not here.
        wanted = scaled.get(one.name, one.manifest["spec"].get("replicas", 1))

        async def available(name: str = one.name, wanted: int = wanted) -> bool:
            found = await release.cluster.ask("GET", release.path("deployments", name))
            return bool(found["status"].get("availableReplicas") == wanted)

        await comes(available)
        pods[one.name] = await release.pods(one.manifest["spec"]["selector"]["matchLabels"])
        assert len(pods[one.name]) == wanted
    assert len({name_of(pod) for those in pods.values() for pod in those}) == sum(
        len(those) for those in pods.values()
    ), "two Deployments share pods"
    for name in scaled:
        found = await release.cluster.ask("GET", release.path("horizontalpodautoscalers", name))
        able = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        assert able["AbleToScale"] == "True"
    return pods


async def slices_list_them(
    release: Release, rendered: Rendered, pods: Mapping[str, list[Object]]
) -> None:
    """Each Service's endpoints are the pods of its Deployment, at the ports of the chart."""
    metrics = rendered.values().get("metrics", {}).get("enabled", True)
    wanted = {"grpc": GRPC, "health": HEALTH} | ({"metrics": METRICS} if metrics else {})
    for service in rendered.of("Service"):
        name = name_of(service)
        if "gymmesh.io/service" not in service["metadata"]["labels"]:
            await vllm_is_found_by_its_urls(release, rendered, service)
            continue
        addresses = {pod["status"]["podIP"]: name_of(pod) for pod in pods[name]}

        async def lists(name: str = name, addresses: Mapping[str, str] = addresses) -> Any:
            slices = await release.get("endpointslices", {"kubernetes.io/service-name": name})
            found = {
                endpoint["addresses"][0]: endpoint["targetRef"]["name"]
                for one in slices
                for endpoint in one["endpoints"] or []
                if endpoint["conditions"]["ready"]
            }
            return slices if found == addresses else None

        labels = service["metadata"]["labels"]
        agent = rendered.values().get("agents", {}).get(labels["gymmesh.io/name"]) or {}
        own = {"gateway": GATEWAY} if agent.get("gateway") else {}
        for one in await comes(lists):
            assert {port["name"]: port["port"] for port in one["ports"]} == wanted | own
            assert labels.items() <= one["metadata"]["labels"].items()


async def vllm_is_found_by_its_urls(release: Release, rendered: Rendered, service: Object) -> None:
    """The names in the mesh file are those that a cluster makes of the endpoints."""
    name = name_of(service)
    mesh = yaml.safe_load(rendered.file("mesh.yaml"))
    (urls,) = (one["urls"] for one in mesh["models"].values() if "urls" in one)

    async def resolved() -> bool:
        slices = await release.get("endpointslices", {"kubernetes.io/service-name": name})
        hosts = [
            f"http://{one['hostname']}.{name}.{release.namespace}.svc:{found['ports'][0]['port']}/v1"
            for found in slices
            for one in found["endpoints"] or []
        ]
        return sorted(hosts) == sorted(urls)

    await comes(resolved)


async def budgets_count_them(
    release: Release, rendered: Rendered, pods: Mapping[str, list[Object]]
) -> None:
    """A PodDisruptionBudget per service is about that service's pods, and lets one go."""
    budgets = {name_of(one): one["spec"] for one in rendered.of("PodDisruptionBudget")}
    assert budgets.keys() >= pods.keys()
    for name, those in pods.items():

        async def counted(name: str = name, count: int = len(those)) -> Any:
            found = await release.cluster.ask("GET", release.path("poddisruptionbudgets", name))
            status = found.get("status", {})
            return status if status.get("currentHealthy") == count else None

        status = await comes(counted)
        assert status["expectedPods"] == len(those)
        assert status["disruptionsAllowed"] == budgets[name]["maxUnavailable"] == 1


async def selectors_meet(release: Release, rendered: Rendered) -> None:
    """What monitors, policies and scalers name is there, as the API server answers it."""
    for one in rendered.of("ServiceMonitor"):
        spec = one["spec"]
        assert spec["namespaceSelector"]["matchNames"] == [release.namespace]
        monitored = await release.get("services", spec["selector"]["matchLabels"])
        assert {name_of(each) for each in monitored} == {
            name_of(each) for each in rendered.of("Service")
        }
        for service in monitored:
            ports = {port["name"] for port in service["spec"]["ports"]}
            assert {endpoint["port"] for endpoint in spec["endpoints"]} <= ports
            # What its relabelings copy; a server of vLLM has none of it.
            known = service["metadata"]["labels"].keys() & {"gymmesh.io/service", "gymmesh.io/name"}
            assert len(known) == (0 if "vllm" in name_of(service) else 2)
    components = set()
    for one in rendered.of("NetworkPolicy"):
        labels = one["spec"]["podSelector"].get("matchLabels", {})
        if is_elsewhere(one):
            continue
        component = labels["app.kubernetes.io/component"]
        components.add(component)
        collects = any(job["kind"] == "Job" for job in rendered.manifests)
        if component != "collector" or collects:
            assert await comes(functools.partial(release.pods, labels)), component
    if components:
        made = {
            pod["metadata"]["labels"]["app.kubernetes.io/component"]
            for pod in await release.get("pods")
        }
        assert made <= components, "pods that no policy is about"
    for one in rendered.of("ScaledObject"):
        target = one["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"]) == ("apps/v1", "Deployment")
        await release.cluster.ask("GET", release.path("deployments", target["name"]))


# ---- found


async def discovery_sees_them(
    release: Release,
    rendered: Rendered,
    pods: Mapping[str, list[Object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Discovery over Kubernetes, with the configuration and the account of the chart's own pod."""
    config = load_mesh(rendered, tmp_path)
    monkeypatch.setattr(registry, "find_access", await access_of_a_pod(release, rendered, tmp_path))
    wanted = {}
    services = {name_of(one): one["metadata"]["labels"] for one in rendered.of("Service")}
    for name, those in pods.items():
        labels = services[name]
        for pod in those:
            instance = instance_of(config, labels, pod)
            instance.meta["kubernetes_service"] = name
            wanted[instance.id] = instance
    backend = KubernetesRegistry(config.discovery.kubernetes)
    await backend.open()
    try:
        await until(lambda: {one.id: one for one in backend.snapshot("", "")[1]} == wanted, LONG_S)
        await readiness_is_followed(release, backend, next(iter(wanted.values())))
    finally:
        await backend.close()


def instance_of(config: MeshConfig, labels: Mapping[str, str], pod: Object) -> pb.Instance:
    """A pod's service as it describes itself, and where Kubernetes says that it is."""
    uid, ip = pod["metadata"]["uid"], pod["status"]["podIP"]
    kind, name = labels["app.kubernetes.io/component"], labels["gymmesh.io/name"]
    (spec,) = (one for one in specs_of(config, suffix=uid) if (one.kind, one.name) == (kind, name))
    role = labels["gymmesh.io/service"]
    listens = kind == "agent" and config.agents[name].gateway is not None
    return pb.Instance(
        id=spec.instance_id,
        service=f"gymmesh.{role}.v1.{role.capitalize()}Service",
        name=name,
        address=f"{ip}:{GRPC}",
        metrics_address=f"{ip}:{METRICS}",
        contract_version=CONTRACT_VERSION,
        weight=1,
        meta={"keepalive_s": "20", "pod": name_of(pod)}
        | ({"gateway": f"{ip}:{GATEWAY}"} if listens else {}),
        locality=pb.Locality(zone=ZONE, host=NODE),
        health=pb.HEALTH_SERVING,
    )


def load_mesh(rendered: Rendered, folder: Path) -> MeshConfig:
    """The mesh file, through the loader that services use."""
    path = folder / "mesh.yaml"
    path.write_text(rendered.file("mesh.yaml"))
    (folder / "answers.jsonl").touch()
    return load_config([path], [], MeshConfig, env={})


async def access_of_a_pod(release: Release, rendered: Rendered, folder: Path) -> Callable[..., Any]:
    """What a discovery pod finds: its account's token and the cluster's authority."""
    (pod,) = (one for one in rendered.services() if one.container["args"][1] == "discovery")
    assert pod.spec["automountServiceAccountToken"]
    account = pod.spec["serviceAccountName"]
    root = await release.cluster.ask("GET", release.path("configmaps", "kube-root-ca.crt"))
    (folder / "ca.crt").write_text(root["data"]["ca.crt"])
    (folder / "namespace").write_text(release.namespace)
    (folder / "token").write_text(await release.cluster.token_of(release.namespace, account))
    port = str(release.cluster.port)
    env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    return functools.partial(find_access, env=env, pod=folder)


async def readiness_is_followed(
    release: Release, backend: KubernetesRegistry, instance: pb.Instance
) -> None:
    path = f"{release.path('pods', instance.meta['pod'])}/status"

    def health() -> int:
        found = backend.snapshot(instance.service, instance.name)[1]
        return next(one.health for one in found if one.id == instance.id)

    for ready, expected in ((False, pb.HEALTH_NOT_SERVING), (True, pb.HEALTH_SERVING)):
        condition = {"type": "Ready", "status": str(ready)}
        status = {"status": {"conditions": [condition]}}
        await release.cluster.ask("PATCH", path, status, "merge")
        await until(functools.partial(lambda wanted: health() == wanted, expected), LONG_S)
