"""Claims of warm pools: what is claimed, what cannot be, and what a claim's state means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import SandboxSpec, find_backend
from gymmesh_sandbox.backends.kubernetes import claims
from gymmesh_sandbox.backends.kubernetes.claims import Claim, ClaimedSandbox
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from gymmesh_sandbox.backends.kubernetes.status import Pod

OPTIONS = KubernetesOptions(claims={"python": "python-pool"}, default_image="python")
OPEN = sandbox_pb2.Network(open=sandbox_pb2.OpenNetwork())
NONE = sandbox_pb2.Network(none=sandbox_pb2.NoNetwork())
NOW = datetime(2026, 11, 29, 23, 59, 0, tzinfo=UTC)


def spec(**changes: Any) -> SandboxSpec:
    values: dict[str, Any] = {
        "sandbox_id": "sb-1",
        "instance_id": "boxes-0",
        "root": "python",
        "resources": sandbox_pb2.Resources(),
        "network": OPEN,
    }
    return SandboxSpec(**(values | changes))


def claim(**status: Any) -> Claim:
    return msgspec.convert({"metadata": {"name": "gymmesh-sb-1"}, "status": status}, Claim)


def ready(status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def test_a_claim_names_its_pool_and_when_it_ends() -> None:
    owner = {"kind": "Pod", "name": "service", "uid": "1"}
    found = claims.claim_manifest(
        spec(resources=sandbox_pb2.Resources(life_s=60), labels={"team": "a"}), OPTIONS, owner, NOW
    )
    assert found["spec"] == {
        "warmPoolRef": {"name": "python-pool"},
        "lifecycle": {"shutdownTime": "2026-11-30T00:01:00Z", "shutdownPolicy": "Delete"},
    }
    assert found["metadata"]["ownerReferences"] == [owner]
    assert found["metadata"]["labels"]["gymmesh.io/instance"] == "boxes-0"
    endless = claims.claim_manifest(spec(), OPTIONS, None, NOW)
    assert "lifecycle" not in endless["spec"]
    assert "ownerReferences" not in endless["metadata"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"root": "node"}, errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND),
        ({"root": sandbox_pb2.ImageBuild()}, errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED),
        ({"user": "7"}, errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED),
        ({"network": NONE}, errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED),
    ],
)
def test_what_a_pod_that_is_there_cannot_be_given(changes: dict[str, Any], reason: int) -> None:
    claims.check_claim(spec(), OPTIONS, "kubernetes")
    with pytest.raises(MeshError) as refused:
        claims.check_claim(spec(**changes), OPTIONS, "kubernetes")
    assert refused.value.reason == reason


def test_pools_without_network_give_none() -> None:
    closed = KubernetesOptions(claims={"python": "python-pool"}, claimed_network="none")
    claims.check_claim(spec(network=NONE), closed, "kubernetes")
    with pytest.raises(MeshError, match="claimed_network"):
        claims.check_claim(spec(), closed, "kubernetes")


@pytest.mark.parametrize(
    "option",
    [
        {"scratch": ["/data"]},
        {"security": "image"},
        {"run_as": 7},
        {"node_selector": {"a": "b"}},
        {"pull": "never"},
        {"unschedulable": "refuse"},
    ],
)
def test_what_the_template_says_is_not_said_twice(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(ValueError, match=f"{name}: remove this key, because the template"):
        find_backend("kubernetes")({"claims": {"python": "python-pool"}} | option)


def test_a_default_image_has_a_pool() -> None:
    with pytest.raises(ValueError, match="'node' has no warm pool"):
        find_backend("kubernetes")({"claims": {"python": "p"}, "default_image": "node"})


def test_a_claim_is_bound_once_its_sandbox_is_ready() -> None:
    assert claims.bound(claim()) == ""
    assert claims.bound(claim(sandbox={"name": "p-1"})) == ""
    waits = claim(sandbox={"name": "p-1"}, conditions=[ready("False", "SandboxNotReady")])
    assert claims.bound(waits) == ""
    assert claims.claim_problem(waits, "python") is None
    assert claims.bound(claim(sandbox={"name": "p-1"}, conditions=[ready("True")])) == "p-1"


@pytest.mark.parametrize("reason", ["WarmPoolNotFound", "TemplateNotFound", "ClaimExpired"])
def test_what_a_controller_does_not_try_again(reason: str) -> None:
    problem = claims.claim_problem(claim(conditions=[ready("False", reason, "no\nsuch")]), "python")
    assert problem is not None
    assert problem.reason == errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED
    assert f"{reason}: no such" in problem.message


@pytest.mark.parametrize("reason", ["AdoptionPending", "SandboxMissing", "ReconcilerError"])
def test_what_it_does_try_again(reason: str) -> None:
    assert claims.claim_problem(claim(conditions=[ready("False", reason)]), "python") is None


def test_the_name_of_the_pod() -> None:
    named = {"metadata": {"name": "p-1"}}
    assert msgspec.convert(named, ClaimedSandbox).pod == "p-1"
    named["metadata"]["annotations"] = {"agents.x-k8s.io/pod-name": "warm-7"}  # type: ignore[assignment]
    assert msgspec.convert(named, ClaimedSandbox).pod == "warm-7"


def test_programs_run_in_the_container_that_kubectl_takes() -> None:
    statuses = [{"name": "side", "containerID": "1"}, {"name": "agent", "containerID": "2"}]
    pod = {
        "spec": {"containers": [{"name": "agent"}, {"name": "side"}]},
        "status": {"containerStatuses": statuses},
    }
    first = msgspec.convert(pod, Pod)
    assert (first.main, first.container.container_id) == ("agent", "2")
    annotations = {"kubectl.kubernetes.io/default-container": "side"}
    chosen = msgspec.convert(pod | {"metadata": {"annotations": annotations}}, Pod)
    assert (chosen.main, chosen.container.container_id) == ("side", "1")
