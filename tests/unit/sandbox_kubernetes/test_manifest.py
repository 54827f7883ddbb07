"""The objects that a sandbox is made of, and what a pod's state means."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import SandboxSpec, find_backend
from gymmesh_sandbox.backends.base import OUT_OF_MEMORY
from gymmesh_sandbox.backends.kubernetes import KubernetesBackend, manifest, status
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions

OPEN = sandbox_pb2.Network(open=sandbox_pb2.OpenNetwork())
NONE = sandbox_pb2.Network(none=sandbox_pb2.NoNetwork())


def spec(**changes: Any) -> SandboxSpec:
    values: dict[str, Any] = {
        "sandbox_id": "sb-1",
        "instance_id": "boxes-0",
        "root": "image:1",
        "resources": sandbox_pb2.Resources(life_s=60),
        "network": OPEN,
    }
    return SandboxSpec(**(values | changes))


def pod(options: KubernetesOptions | None = None, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = manifest.pod_manifest(
        spec(**changes), options or KubernetesOptions(), None
    )["spec"]
    return found


def test_it_is_found_by_name() -> None:
    assert find_backend("kubernetes") is KubernetesBackend


def test_a_pod_is_restricted_unless_asked() -> None:
    restricted = pod()
    assert restricted["securityContext"]["runAsNonRoot"] is True
    container = restricted["containers"][0]["securityContext"]
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["allowPrivilegeEscalation"] is False
    assert (container["runAsUser"], container["runAsGroup"]) == (65534, 65534)
    assert pod(user="7:8")["containers"][0]["securityContext"]["runAsGroup"] == 8
    with pytest.raises(MeshError, match="restricted"):
        pod(user="0")
    as_image = KubernetesOptions(security="image")
    assert "securityContext" not in pod(as_image)
    assert pod(as_image)["containers"][0]["securityContext"] == {}
    assert pod(as_image, user="0")["containers"][0]["securityContext"] == {"runAsUser": 0}


def test_a_digest_is_the_nodes_to_check() -> None:
    image = pod(image_digest="sha256:ab")["containers"][0]["image"]
    assert image == "image:1@sha256:ab"
    assert manifest.reference_of("image@sha256:cd", "sha256:ab") == "image@sha256:ab"


@pytest.mark.parametrize("name", ["", "-a", "a/b", "é", "a" * 64, "a."])
def test_any_instance_has_a_label(name: str) -> None:
    value = manifest.label_value(name)
    assert len(value) <= 63
    assert value.isalnum()
    assert manifest.label_value("boxes-0.a_b") == "boxes-0.a_b"


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"root": sandbox_pb2.ImageBuild()}, "build"),
        ({"resources": sandbox_pb2.Resources(disk_bytes=1)}, "disk_bytes"),
        ({"network": sandbox_pb2.Network(relay=sandbox_pb2.Relay())}, "network.relay"),
        ({"network": sandbox_pb2.Network(hosts=sandbox_pb2.AllowedHosts())}, "network.hosts"),
        ({"network": NONE}, "network.none"),
        ({"network": sandbox_pb2.Network()}, "network.none"),
    ],
)
def test_what_no_pod_can_be_made_of_is_refused_by_name(
    changes: dict[str, Any], option: str
) -> None:
    with pytest.raises(MeshError) as refused:
        manifest.check_spec(spec(**changes), KubernetesOptions(), "kubernetes")
    assert refused.value.reason == errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED
    assert option in refused.value.message
    if "none" in option:
        enforced = KubernetesOptions(network_policies=True)
        manifest.check_spec(spec(**changes), enforced, "kubernetes")


def test_a_user_is_a_number() -> None:
    with pytest.raises(MeshError, match="UID"):
        manifest.check_spec(spec(user="alice"), KubernetesOptions(), "kubernetes")


@pytest.mark.parametrize(
    "options",
    [
        {"kubconfig": "a"},
        {"server": "nowhere"},
        {"server": "https://k8s:6443", "kubeconfig": "a"},
        {"server": "http://k8s:8001", "token_file": "a"},
        {"run_as": 0},
        {"scratch": ["work"]},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        KubernetesBackend(options)


# ---- states


def state(container: dict[str, Any] | None = None, **fields: Any) -> status.Pod:
    said = fields if container is None else fields | {"containerStatuses": [{"state": container}]}
    return msgspec.convert({"status": said}, status.Pod)


def test_a_pod_that_runs() -> None:
    running = state({"running": {"startedAt": "now"}}, phase="Running")
    assert status.runs(running)
    assert status.lost_cause(running) is None
    assert status.start_problem(running, "a", refuse_unschedulable=True) is None
    for waits in (state(phase="Pending"), state({"waiting": {"reason": "ContainerCreating"}})):
        assert not status.runs(waits)
        assert status.start_problem(waits, "a", refuse_unschedulable=True) is None


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (state({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), OUT_OF_MEMORY),
        (state({"terminated": {"exitCode": 3, "reason": "Error"}}), "exit code 3"),
        (state(phase="Succeeded"), "lifetime is over"),
        (state(phase="Failed", reason="DeadlineExceeded"), "lifetime is over"),
        (state(phase="Failed", reason="Evicted", message="low on memory"), "low on memory"),
        (state(phase="Failed", reason="Preempting"), "Preempting"),
        (state(phase="Unknown"), "node is lost"),
        (state(phase="Running", reason="NodeLost"), "node is lost"),
    ],
)
def test_why_a_pod_ended(found: status.Pod, cause: str) -> None:
    assert cause in str(status.lost_cause(found))


@pytest.mark.parametrize(
    ("reason", "message", "meaning"),
    [
        ("ErrImagePull", "rpc error: not found", "SANDBOX_IMAGE_NOT_FOUND"),
        ("ErrImagePull", "i/o timeout", None),  # the node tries again
        ("ImagePullBackOff", "i/o timeout", "SANDBOX_IMAGE_FAILED"),
        ("InvalidImageName", "", "SANDBOX_IMAGE_FAILED"),
        ("CreateContainerConfigError", "runs as root", "SANDBOX_IMAGE_FAILED"),
        ("PodInitializing", "", None),
    ],
)
def test_why_a_pod_does_not_start(reason: str, message: str, meaning: str | None) -> None:
    found = state({"waiting": {"reason": reason, "message": message}}, phase="Pending")
    problem = status.start_problem(found, "a", refuse_unschedulable=False)
    if meaning is None:
        assert problem is None
    else:
        assert problem is not None
        assert errors_pb2.ErrorReason.Name(problem.reason).endswith(meaning)


def test_no_room_is_a_limit_where_the_operator_says_so() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    found = state(phase="Pending", conditions=[unschedulable])
    assert status.start_problem(found, "a", refuse_unschedulable=False) is None
    problem = status.start_problem(found, "a", refuse_unschedulable=True)
    assert problem is not None
    assert problem.reason == errors_pb2.ERROR_REASON_SANDBOX_LIMIT
