"""What the state of a pod means for its sandbox. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import OUT_OF_MEMORY
from gymmesh_sandbox.errors import image_failed, sandbox_limit

_MAX_SHOWN: Final = 200
# The node says these for good; others of its reasons pass, or come again as one of these.
_PULL_FAILED: Final = frozenset(("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"))
_START_FAILED: Final = frozenset(
    ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff")
)
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_NOT_THERE: Final = (
    "not found",
    "manifest unknown",
    "does not exist",
    "not present with pull policy of never",
)


class Waiting(msgspec.Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    """One of these, or none."""

    waiting: Waiting | None = None
    running: dict[str, object] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A container's state, as the node reports it."""

    name: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = ContainerState()


class Condition(msgspec.Struct, frozen=True):
    """One fact about a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's status, as the node and the scheduler report it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The identity of a pod."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] = {}


class ContainerSpec(msgspec.Struct, frozen=True):
    """A container in a pod's specification."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True):
    """A pod's specification."""

    containers: list[ContainerSpec] = []


class Pod(msgspec.Struct, frozen=True):
    """The used fields of a pod."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def main(self) -> str:
        """The name of the container in which programs run: the one that kubectl would choose."""
        first = self.spec.containers[0].name if self.spec.containers else ""
        return self.metadata.annotations.get(_DEFAULT_CONTAINER, first)

    @property
    def container(self) -> ContainerStatus:
        """The state of the container `main`."""
        found = self.status.container_statuses or ()
        return next((one for one in found if one.name == self.main), ContainerStatus())


def runs(pod: Pod) -> bool:
    """Whether the sandbox's container runs."""
    return pod.status.phase == "Running" and pod.container.state.running is not None


def digest_of(pod: Pod) -> str:
    """The digest of the image that it runs; empty: the node does not report it."""
    _, at, digest = pod.container.image_id.rpartition("@")
    return digest if at else ""


def start_problem(pod: Pod, image: str, *, refuse_unschedulable: bool) -> MeshError | None:
    """Why a created pod will never run; None: it runs, or may run."""
    waiting = pod.container.state.waiting
    if waiting is not None:
        said = shown_words(waiting.message or waiting.reason)
        missing = any(one in waiting.message.lower() for one in _NOT_THERE)
        if missing and (waiting.reason == "ErrImagePull" or waiting.reason in _PULL_FAILED):
            return _image_not_found(image, said)
        if waiting.reason in _PULL_FAILED or waiting.reason in _START_FAILED:
            return image_failed(image, f"{waiting.reason}: {said}")
    if refuse_unschedulable:
        for one in pod.status.conditions or ():
            if (one.type, one.status, one.reason) == ("PodScheduled", "False", "Unschedulable"):
                return sandbox_limit(
                    f"No node of the cluster has room for the sandbox: {shown_words(one.message)}.",
                    0,
                )
    cause = lost_cause(pod)
    return None if cause is None else image_failed(image, cause)


def lost_cause(pod: Pod) -> str | None:
    """Why a sandbox ended, by the sandbox's pod; None: it has not ended."""
    status, ended = pod.status, pod.container.state.terminated
    if ended is not None and ended.reason == "OOMKilled":
        return OUT_OF_MEMORY
    if status.reason == "DeadlineExceeded" or status.phase == "Succeeded":
        return "its lifetime is over"
    if status.reason == "Evicted":
        return (
            f"the sandbox's pod was evicted: "
            f"{shown_words(status.message or 'the node gave no reason')}"
        )
    if ended is not None:
        words = shown_words(ended.message or ended.reason)
        return f"the sandbox's container ended with the exit code {ended.exit_code}: {words}"
    if status.phase == "Failed":
        return f"the sandbox's pod failed: {shown_words(status.message or status.reason)}"
    if pod.metadata.deletion_timestamp:
        return "the sandbox's pod is being deleted"
    if status.phase == "Unknown" or status.reason == "NodeLost":
        return "the sandbox's node is lost"
    return None


def deleted_at_start(image: str) -> MeshError:
    """The pod was deleted before it ran."""
    return image_failed(image, "the sandbox's pod was deleted before it ran")


def _image_not_found(image: str, said: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
        f"The node can't find the image {image!r}: {said}.",
        metadata={"image": image},
    )


def shown_words(text: str) -> str:
    """The start of a node's or a controller's text, on one line, without a full stop."""
    words = " ".join(text.split()).rstrip(".")
    shown = "".join(one if one.isprintable() else "?" for one in words)
    return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 1] + "…"
