"""Pods without nodes: what a kubelet would say of them is said by the test."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.cluster import NODE, Cluster


def service(namespace: str, name: str, kind: str, called: str, **labels: str) -> dict[str, Any]:
    """A headless Service of the mesh, whose pods have the label `app` and a port `grpc`."""
    said = {"gymmesh.io/service": kind, "gymmesh.io/name": called}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": said | labels},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": name},
            "ports": [{"name": "grpc", "port": 9400, "targetPort": "grpc"}],
        },
    }


async def start_pod(
    cluster: Cluster, namespace: str, app: str, name: str, *, ip: str, port: int = 9400
) -> str:
    """Makes a pod that runs and is ready; returns its UID."""
    made = await cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
            "spec": {
                "nodeName": NODE,
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "ports": [{"name": "grpc", "containerPort": port}],
                    }
                ],
            },
        }
    )
    await say(cluster, namespace, name, ready=True, ip=ip)
    return str(made["metadata"]["uid"])


async def say(
    cluster: Cluster, namespace: str, name: str, *, ready: bool, ip: str | None = None
) -> None:
    """Says as a kubelet does whether a pod is ready."""
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    await cluster.ask("PATCH", path, {"status": status}, "merge")


async def end_pod(cluster: Cluster, namespace: str, name: str) -> None:
    """Asks for a pod's end: it is terminating until its kubelet says that it has ended."""
    await cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")


async def bury_pod(cluster: Cluster, namespace: str, name: str) -> None:
    """Says as a kubelet does that a pod has ended."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"
    await cluster.ask("DELETE", path)
