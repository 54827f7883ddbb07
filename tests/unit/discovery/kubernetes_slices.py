"""EndpointSlices for tests, made of what an API server said.

``RECORDED`` is that, word for word: tests/kubernetes/recording.py says what is in it.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

MODEL: Final = "gymmesh.model.v1.ModelService"
AGENT: Final = "gymmesh.agent.v1.AgentService"
RESOURCE: Final = "gymmesh.resource.v1.ResourceService"

RECORDED: Final[dict[str, Any]] = json.loads(
    Path(__file__).with_name("kubernetes_recorded.json").read_text(encoding="utf-8")
)


def endpoint(
    address: str = "10.0.0.7",
    uid: str = "u-1",
    *,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An endpoint of a pod on no node; conditions that are None are left out."""
    found: dict[str, Any] = copy.deepcopy(RECORDED["list"]["items"][0]["endpoints"][0])
    del found["nodeName"], found["zone"]
    conditions = {"ready": ready, "serving": serving, "terminating": terminating}
    found["addresses"] = [address]
    found["conditions"] = {key: value for key, value in conditions.items() if value is not None}
    found["targetRef"] |= {"name": f"pod-{uid}", "uid": uid}
    return found | more


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
    """A slice of a Service that has the labels for its kind and its name, and those given."""
    found: dict[str, Any] = copy.deepcopy(RECORDED["list"]["items"][0])
    metadata = found["metadata"]
    kept = {key: one for key, one in metadata["labels"].items() if not key.startswith("gymmesh.io")}
    said = {"gymmesh.io/service": service, "gymmesh.io/name": called}
    metadata["labels"] = {**kept, **said, "kubernetes.io/service-name": called, **(labels or {})}
    metadata |= {"name": name, "resourceVersion": version}
    found["endpoints"] = list(endpoints)
    found["ports"] = [{"name": "grpc", "port": port, "protocol": "TCP"}]
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **found, **more}
