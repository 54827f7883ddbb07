"""Claims of kubernetes-sigs/agent-sandbox: a ready pod of a warm pool. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.kubernetes import manifest
from gymmesh_sandbox.backends.kubernetes.config import KubernetesOptions
from gymmesh_sandbox.backends.kubernetes.status import Condition, PodMetadata, shown_words
from gymmesh_sandbox.errors import image_failed, image_not_found, option_unsupported

#: The group and version of SandboxClaim, and of Sandbox.
CLAIM_VERSION: Final = "extensions.agents.x-k8s.io/v1beta1"
SANDBOX_VERSION: Final = "agents.x-k8s.io/v1beta1"
#: The label that the controller gives the pod of every sandbox.
POD: Final = "agents.x-k8s.io/sandbox-name-hash"
# Of a sandbox whose pod has another name than itself.
_POD_NAME: Final = "agents.x-k8s.io/pod-name"
_READY: Final = "Ready"
_NO_POOL: Final = frozenset(("TemplateNotFound", "WarmPoolNotFound"))
# The controller tries no more after these; after others it does.
_FINAL: Final = frozenset(
    (
        "ClaimExpired",
        "EnvVarsInjectionRejected",
        "InvalidConfiguration",
        "InvalidMetadata",
        "PodFailed",
        "PodSucceeded",
        "SandboxExpired",
        "VolumeClaimTemplatesError",
    )
)


class ClaimedRef(msgspec.Struct, frozen=True):
    """The sandbox that a claim got; no name: none yet."""

    name: str = ""


class ClaimStatus(msgspec.Struct, frozen=True):
    """The controller's status of a claim."""

    sandbox: ClaimedRef = ClaimedRef()
    conditions: list[Condition] | None = None


class Claim(msgspec.Struct, frozen=True):
    """The used fields of a SandboxClaim."""

    metadata: PodMetadata = PodMetadata()
    status: ClaimStatus = ClaimStatus()


class ClaimedSandbox(msgspec.Struct, frozen=True):
    """The used fields of a Sandbox."""

    metadata: PodMetadata = PodMetadata()

    @property
    def pod(self) -> str:
        """The name of its pod."""
        return self.metadata.annotations.get(_POD_NAME) or self.metadata.name


def check_claim(spec: SandboxSpec, options: KubernetesOptions, backend: str) -> None:
    """Raises SANDBOX_OPTION_UNSUPPORTED for options that an existing pod can't get, and
    SANDBOX_IMAGE_NOT_FOUND for an image without a pool.
    """
    if not isinstance(spec.root, str):
        raise option_unsupported("build", backend)
    if spec.root not in options.claims:
        known = ", ".join(sorted(options.claims))
        raise image_not_found(
            spec.root, f"the option 'claims' has warm pools only for these images: {known}"
        )
    if spec.user:
        raise option_unsupported("user of a claimed pod", backend)
    kind = spec.network.WhichOneof("kind") or "none"
    if kind != options.claimed_network:
        raise option_unsupported(
            f"network.{kind} of claimed pods, because the option 'claimed_network' is"
            f" '{options.claimed_network}'",
            backend,
        )


def claim_manifest(
    spec: SandboxSpec, options: KubernetesOptions, owner: dict[str, Any] | None, now: datetime
) -> dict[str, Any]:
    """The claim of a sandbox.

    Args:
        spec: as `check_claim` accepts it.
        owner: the reference to the service's own pod; the sandbox ends with it.
    """
    assert isinstance(spec.root, str)
    body: dict[str, Any] = {"warmPoolRef": {"name": options.claims[spec.root]}}
    if spec.resources.life_s:
        until = now.astimezone(UTC) + timedelta(
            seconds=spec.resources.life_s + manifest.LIFE_MARGIN_S
        )
        body["lifecycle"] = {
            "shutdownTime": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "shutdownPolicy": "Delete",
        }
    return {
        "apiVersion": CLAIM_VERSION,
        "kind": "SandboxClaim",
        "metadata": manifest.metadata_of(spec, owner),
        "spec": body,
    }


def bound(claim: Claim) -> str:
    """The name of the sandbox that a claim got and that is ready; empty: none yet."""
    ready = any(one.status == "True" for one in _readiness(claim))
    return claim.status.sandbox.name if ready else ""


def claim_problem(claim: Claim, image: str) -> MeshError | None:
    """Why a claim will never get a sandbox; None: it has one, or may get one."""
    for one in _readiness(claim):
        if one.status == "False" and (one.reason in _NO_POOL or one.reason in _FINAL):
            words = shown_words(one.message)
            return image_failed(image, f"{one.reason}: {words}" if words else one.reason)
    if claim.metadata.deletion_timestamp:
        return image_failed(image, "the sandbox's claim was deleted before a pod was ready")
    return None


def _readiness(claim: Claim) -> list[Condition]:
    return [one for one in claim.status.conditions or () if one.type == _READY]
