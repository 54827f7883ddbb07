"""What the API server says of EndpointSlices while pods come, drain and go, word for word.

The unit tests read it from tests/unit/discovery/kubernetes_recorded.json, so that they know
Kubernetes as it is without having one. test_recorded.py finds out when it speaks otherwise; then:

    GYMMESH_TEST_KUBERNETES="$(tools/setup-kubernetes.sh)" python -m tests.kubernetes.recording
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.kubernetes.cluster import ADMIN, STRANGER, ApiError, Cluster
from tests.kubernetes.pods import bury_pod, end_pod, say, service, start_pod
from tests.kubernetes.release import comes
from tests.support.docs import ROOT

FILE: Final = ROOT / "tests" / "unit" / "discovery" / "kubernetes_recorded.json"
_WATCH_S: Final = 5  # long enough for a bookmark before its end
_FAR: Final = 10**9
_SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"


async def record(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Everything, by what it is: lists, the `events` of a watch in order, a `bookmark`, and the
    answers to requests that are refused.
    """
    path = _SLICES.format(namespace)
    empty = await cluster.ask("GET", path)
    since = empty["metadata"]["resourceVersion"]
    listed = await _a_life(cluster, namespace, path)
    watch = f"{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={_WATCH_S}"
    events = await _lines(cluster, f"{watch}&resourceVersion={since}")
    last = events[-1]["object"]["metadata"]["resourceVersion"]
    bookmark, _ = await asyncio.gather(
        _lines(cluster, f"{watch}&resourceVersion={last}"), _elsewhere(cluster)
    )
    # A new life of the API server remembers no more than etcd does.
    await cluster.forget()
    await asyncio.to_thread(cluster.kill, "kube-apiserver")
    await asyncio.to_thread(cluster.start_api)
    return {
        "version": (await cluster.ask("GET", "/version"))["gitVersion"],
        "empty": empty,
        **listed,
        "events": events,
        "bookmark": bookmark,
        "too_old": await _lines(cluster, f"{watch}&resourceVersion={since}"),
        "too_new_watch": await _lines(cluster, f"{watch}&resourceVersion={_FAR}"),
        "unauthorized": await _refusal(cluster, path, "no-such-token"),
        "forbidden": await _refusal(cluster, path, STRANGER),
        "bad_selector": await _refusal(cluster, f"{path}?labelSelector=in+in+in"),
    }


async def _a_life(cluster: Cluster, namespace: str, path: str) -> dict[str, Any]:
    """Two pods of a Service, and how they end; returns the lists on the way."""
    labels = {
        "gymmesh.io/contract": "1.0",
        "gymmesh.io/weight": "3",
        "gymmesh.io/keepalive_s": "20",
    }
    made = service(namespace, "policy", "model", "policy", **labels)
    made["spec"]["ports"].append({"name": "metrics", "port": 9100})
    await cluster.apply(made)
    await start_pod(cluster, namespace, "policy", "policy-0", ip="10.0.0.7")
    await _until(cluster, path, [(True, True, False)])
    await start_pod(cluster, namespace, "policy", "policy-1", ip="10.0.0.8")
    await say(cluster, namespace, "policy-1", ready=False)
    await _until(cluster, path, [(True, True, False), (False, False, False)])
    listed = await cluster.ask("GET", path)
    await end_pod(cluster, namespace, "policy-0")
    await _until(cluster, path, [(False, True, True), (False, False, False)])
    await say(cluster, namespace, "policy-0", ready=False)
    await _until(cluster, path, [(False, False, True), (False, False, False)])
    await bury_pod(cluster, namespace, "policy-0")
    await _until(cluster, path, [(False, False, False)])
    await cluster.apply(service(namespace, "judge", "model", "judge"))

    async def both() -> bool:
        return len((await cluster.ask("GET", path))["items"]) == 2

    await comes(both)
    page = await cluster.ask("GET", f"{path}?limit=1")
    await cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/services/policy")

    async def one() -> bool:
        return len((await cluster.ask("GET", path))["items"]) == 1

    await comes(one)
    return {"list": listed, "page": page}


async def _elsewhere(cluster: Cluster) -> None:
    """Something changes that is not watched: without that there is no bookmark."""
    found = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "elsewhere", "namespace": "default"},
        "addressType": "IPv4",
        "endpoints": [],
    }
    await cluster.apply(found)
    await cluster.ask("DELETE", f"{_SLICES.format('default')}/elsewhere")


async def _until(cluster: Cluster, path: str, conditions: list[tuple[bool, ...]]) -> None:
    """Until the slice has endpoints that are ready, serve and terminate like that."""

    async def so() -> bool:
        found = (await cluster.ask("GET", path))["items"]
        endpoints = [one for item in found for one in item["endpoints"] or []]
        said = [tuple(one["conditions"].values()) for one in endpoints]
        return sorted(said) == sorted(conditions)

    await comes(so)


async def _lines(cluster: Cluster, path: str) -> list[Any]:
    text = await asyncio.to_thread(cluster.text, "GET", path)
    return [json.loads(line) for line in text.splitlines()]


async def _refusal(cluster: Cluster, path: str, token: str = ADMIN) -> Any:
    try:
        text = await asyncio.to_thread(cluster.text, "GET", path, token=token)
    except ApiError as error:
        return json.loads(error.body)
    raise AssertionError(f"{path} was not refused: {text}")


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(os.environ["GYMMESH_TEST_KUBERNETES"]), Path(folder))
        try:
            cluster.start()
            cluster.make_namespace("lab")
            recorded = await record(cluster, "lab")
        finally:
            cluster.close()
    FILE.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(_main())
