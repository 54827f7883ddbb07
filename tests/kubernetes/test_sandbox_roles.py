"""What the chart's Roles allow is what the backend asks for, by the real API server's own rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.kubernetes import find_api_server
from gymmesh_sandbox.backends.kubernetes import KubernetesBackend
from gymmesh_sandbox.backends.kubernetes.api import ApiError, KubernetesApi
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from tests.deploy.chart import Chart
from tests.kubernetes.cluster import STRANGER, Cluster
from tests.kubernetes.release import Release
from tests.kubernetes.test_claims import CLAIMS, claimed
from tests.kubernetes.test_sandboxes import pods, spec

NONE: Final = sandbox_pb2.Network(none=sandbox_pb2.NoNetwork())


async def options_of(release: Release, name: str, folder: Path) -> dict[str, Any]:
    """The account of a sandbox service of the chart, with its Role in the test's namespace."""
    space = f"--set=sandboxes.{name}.config.options.namespace={release.namespace}"
    rendered = release.render("sandboxes", space)
    object_name = f"mesh-gymmesh-sandbox-{name}"
    (service,) = (one for one in rendered.services() if one.name == object_name)
    account = service.spec["serviceAccountName"]
    wanted = {("Role", object_name), ("RoleBinding", object_name), ("ServiceAccount", account)}
    made = [one for one in rendered.manifests if (one["kind"], one["metadata"]["name"]) in wanted]
    assert len(made) == len(wanted)
    await release.kubectl("apply", "--filename=-", given=yaml.safe_dump_all(made))
    token = await release.cluster.token_of(release.namespace, account)
    (folder / "token").write_text(token)
    return {
        "server": release.cluster.server,
        "ca_file": str(release.cluster.ca_file),
        "token_file": str(folder / "token"),
        "namespace": release.namespace,
    }


async def statuses(options: dict[str, Any]) -> list[int]:
    """What the API server answers to an exec and to a port of a pod that is not there."""
    api = KubernetesApi(find_api_server(KubernetesOptions(**options), "options"))
    found = []
    try:
        for asking in (api.exec("nobody", "main", ["true"]), api.forward("nobody", 80)):
            with pytest.raises(ApiError) as refused:
                await asking
            found.append(refused.value.status)
    finally:
        await api.close()
    return found


async def test_sandboxes_that_are_pods(
    cluster: Cluster, chart: Chart, namespace: str, tmp_path: Path
) -> None:
    release = Release(cluster, chart, namespace)
    options = await options_of(release, "pods", tmp_path)
    backend = KubernetesBackend(options | {"network_policies": True})
    await backend.open()
    try:
        assert await backend.end_leftovers("tests") == 0
        # There is no node: the pod is made, followed, and deleted again.
        creating = asyncio.create_task(backend.create(spec(network=NONE)))
        async with asyncio.timeout(60):
            while not await pods(cluster, namespace):  # noqa: ASYNC110  # no event for it
                await asyncio.sleep(0.1)
        creating.cancel()
        await asyncio.wait((creating,))
        assert creating.cancelled()
        assert await pods(cluster, namespace) == []
    finally:
        await backend.close()
    assert await statuses(options) == [404, 404]
    (tmp_path / "token").write_text(STRANGER)
    assert await statuses(options) == [403, 403]


async def test_sandboxes_that_are_claimed(
    claiming: Cluster, chart: Chart, namespace: str, tmp_path: Path
) -> None:
    release = Release(claiming, chart, namespace)
    options = await options_of(release, "claimed", tmp_path)
    backend = KubernetesBackend(options | {"claims": CLAIMS})
    await backend.open()
    claims = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{namespace}/sandboxclaims"
    try:
        creating = asyncio.create_task(backend.create(claimed()))
        async with asyncio.timeout(60):
            while not (await claiming.ask("GET", claims))["items"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        creating.cancel()
        await asyncio.wait((creating,))
        assert (await claiming.ask("GET", claims))["items"] == []
    finally:
        await backend.close()
    api = KubernetesApi(find_api_server(KubernetesOptions(**options), "options"))
    try:
        assert await api.claimed("nobody") is None
        assert await api.pod("nobody") is None
        with pytest.raises(ApiError, match="403"):
            await api.create_pod({"metadata": {"name": "own"}})
    finally:
        await api.close()
    assert await statuses(options) == [404, 404]
