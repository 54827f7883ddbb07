"""EndpointSlices for tests, in the API's own JSON."""

from __future__ import annotations

from typing import Any

MODEL = "gymmesh.model.v1.ModelService"
AGENT = "gymmesh.agent.v1.AgentService"
RESOURCE = "gymmesh.resource.v1.ResourceService"


def endpoint(
    address: str = "10.0.0.7",
    uid: str = "u-1",
    *,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An endpoint of a pod; conditions that are None are left out."""
    conditions = {"ready": ready, "serving": serving, "terminating": terminating}
    return {
        "addresses": [address],
        "conditions": {key: value for key, value in conditions.items() if value is not None},
        "targetRef": {"kind": "Pod", "name": f"pod-{uid}", "namespace": "lab", "uid": uid},
        **more,
    }


def slice_of(
    *endpoints: dict[str, Any],
    name: str = "policy-abc12",
    service: str = "model",
    called: str = "policy",
    port: int = 9400,
    version: str = "7",
    labels: dict[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A slice of a labelled Service."""
    said = {"gymmesh.io/service": service, "gymmesh.io/name": called}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "resourceVersion": version,
            "labels": {**said, "kubernetes.io/service-name": called, **(labels or {})},
        },
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "grpc", "port": port, "protocol": "TCP"}],
        **more,
    }
