"""The Kubernetes objects of a sandbox. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_runtime.errors import field_invalid
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.image_shell.scripts import FIRST_PROCESS
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from gymmesh_sandbox.errors import option_unsupported

#: Labels of a pod.
SANDBOX: Final = "gymmesh.io/sandbox"
INSTANCE: Final = "gymmesh.io/instance"
_NETWORK: Final = "gymmesh.io/sandbox-network"
#: The container's name.
MAIN: Final = "main"
#: The policy that takes the network from all pods with the label of it; one for the namespace.
POLICY: Final = "gymmesh-sandbox-no-network"
_NONE: Final = "none"
#: How much longer than its sandbox an object lasts where nobody ends it, in seconds.
LIFE_MARGIN_S: Final = 60
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PULL: Final = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}


def pod_name(sandbox_id: str) -> str:
    """The name of a sandbox's pod, or of its claim."""
    return f"gymmesh-{sandbox_id.lower()}"


def label_value(text: str) -> str:
    """An instance's id as the value of a label; characters that a label can't have are encoded."""
    if _LABEL.fullmatch(text):
        return text
    return "x" + text.encode().hex()[:62]


def selector(instance_id: str) -> str:
    """The labels of an instance's objects."""
    return f"{INSTANCE}={label_value(instance_id)}"


def reference_of(image: str, digest: str) -> str:
    """An image and its required digest, in the form that the node fetches."""
    return f"{image.partition('@')[0]}@{digest}" if digest else image


def check_spec(spec: SandboxSpec, options: KubernetesOptions, backend: str) -> None:
    """Raises SANDBOX_OPTION_UNSUPPORTED and FIELD_INVALID if no pod can be created for a
    request.
    """
    if not isinstance(spec.root, str):
        raise option_unsupported("build", backend)
    if spec.resources.disk_bytes:
        raise option_unsupported("resources.disk_bytes", backend)
    kind = spec.network.WhichOneof("kind") or _NONE
    if kind not in (_NONE, "open"):
        raise option_unsupported(f"network.{kind}", backend)
    if kind == _NONE and not options.network_policies:
        raise option_unsupported(
            "network.none without the option 'network_policies' (use network.open)", backend
        )
    if spec.user:
        user_of(spec.user)


def user_of(user: str) -> tuple[int, int | None]:
    """The number of a user, and of a group if it is given. Raises FIELD_INVALID for a name."""
    uid, colon, gid = user.partition(":")
    if not uid.isdecimal() or (colon and not gid.isdecimal()):
        raise field_invalid(
            "user", f"is '{user}'; write the user of a pod as numbers: UID or UID:GID"
        )
    return int(uid), int(gid) if colon else None


def pod_manifest(
    spec: SandboxSpec, options: KubernetesOptions, owner: dict[str, Any] | None
) -> dict[str, Any]:
    """The pod of a sandbox.

    Args:
        spec: as `check_spec` accepts it.
        owner: the reference to the service's own pod; the sandbox ends with it.
    """
    assert isinstance(spec.root, str)
    life = spec.resources.life_s + LIFE_MARGIN_S if spec.resources.life_s else 0
    container: dict[str, Any] = {
        "name": MAIN,
        "image": reference_of(spec.root, spec.image_digest),
        "imagePullPolicy": _PULL[options.pull],
        "command": ["/bin/sh", "-c", FIRST_PROCESS, "sh", str(life)],
        "resources": _resources(spec),
        "securityContext": _security(spec, options),
        "volumeMounts": [
            {"name": f"scratch-{at}", "mountPath": path} for at, path in enumerate(options.scratch)
        ],
    }
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [
            {"name": f"scratch-{at}", "emptyDir": {}} for at in range(len(options.scratch))
        ],
        "nodeSelector": options.node_selector,
        "imagePullSecrets": [{"name": name} for name in options.pull_secrets],
    }
    if life:
        pod["activeDeadlineSeconds"] = life
    if options.runtime_class:
        pod["runtimeClassName"] = options.runtime_class
    if options.security == "restricted":
        pod["securityContext"] = {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroup": _ids(spec, options)[1],
        }
    metadata = metadata_of(spec, owner)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def metadata_of(spec: SandboxSpec, owner: dict[str, Any] | None) -> dict[str, Any]:
    """The metadata by which a sandbox's object (a pod or a claim) is found again."""
    found: dict[str, Any] = {
        "name": pod_name(spec.sandbox_id),
        "labels": {
            SANDBOX: spec.sandbox_id,
            INSTANCE: label_value(spec.instance_id),
            _NETWORK: spec.network.WhichOneof("kind") or _NONE,
        },
        "annotations": {f"sandbox.gymmesh.io/{key}": one for key, one in _annotations(spec)},
    }
    return found if owner is None else found | {"ownerReferences": [owner]}


def no_network_policy() -> dict[str, Any]:
    """The NetworkPolicy that blocks all packets, in both directions."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "podSelector": {"matchLabels": {_NETWORK: _NONE}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def _annotations(spec: SandboxSpec) -> list[tuple[str, str]]:
    """The labels of a request, as annotations, because a pod's labels can't have every text."""
    return [
        (key, value)
        for key, value in spec.labels.items()
        if _LABEL.fullmatch(key) and "\0" not in value
    ]


def _resources(spec: SandboxSpec) -> dict[str, Any]:
    found = {}
    if spec.resources.memory_bytes:
        found["memory"] = str(spec.resources.memory_bytes)
    if spec.resources.cpu_millis:
        found["cpu"] = f"{spec.resources.cpu_millis}m"
    return {"requests": found, "limits": found} if found else {}


def _security(spec: SandboxSpec, options: KubernetesOptions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.security == "restricted":
        uid, gid = _ids(spec, options)
        found = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsUser": uid,
            "runAsGroup": gid,
        }
    elif spec.user:
        uid, group = user_of(spec.user)
        found = {"runAsUser": uid} | ({} if group is None else {"runAsGroup": group})
    return found


def _ids(spec: SandboxSpec, options: KubernetesOptions) -> tuple[int, int]:
    if not spec.user:
        return options.run_as, options.run_as
    uid, gid = user_of(spec.user)
    if uid == 0:
        raise field_invalid("user", "is root, but the option 'security: restricted' forbids root")
    return uid, uid if gid is None else gid
