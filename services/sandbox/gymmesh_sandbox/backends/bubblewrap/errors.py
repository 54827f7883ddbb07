"""The errors of this backend that are not about a file."""

from __future__ import annotations

from gymmesh_runtime.errors import MeshError, Reason


def image_not_found(image: str) -> MeshError:
    """SANDBOX_IMAGE_NOT_FOUND."""
    return MeshError(
        Reason.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
        f"There is no image or snapshot '{image}'. Add the image to the backend's option 'images'.",
        metadata={"image": image},
    )


def image_failed(image: str, cause: str) -> MeshError:
    """SANDBOX_IMAGE_FAILED."""
    return MeshError(
        Reason.ERROR_REASON_SANDBOX_IMAGE_FAILED,
        f"No sandbox can be started from the image '{image}': {cause}",
        metadata={"image": image, "cause": cause},
    )


def option_unsupported(option: str, backend: str = "bubblewrap") -> MeshError:
    """SANDBOX_OPTION_UNSUPPORTED."""
    return MeshError(
        Reason.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED,
        f"The backend '{backend}' does not support {option} on this machine.",
        metadata={"option": option, "backend": backend},
    )
