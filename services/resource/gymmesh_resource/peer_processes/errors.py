"""How a call to a peer process fails.

PeerFault
├── PeerLost      the process did not start, ended, hung or broke the protocol; all its calls fail
├── PeerTimeout   one call took too long and was given up; the process lives
└── PeerRaised    the script's method raised
"""

from __future__ import annotations

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

_Reason = errors_pb2.ErrorReason


class PeerFault(Exception):
    """The base. The text is one clause, with the last lines of the process's error output where
    they help; secrets are masked.
    """

    def as_mesh_error(
        self,
        environment: str,
        stage: str,
        reason: _Reason.ValueType = _Reason.ERROR_REASON_ENVIRONMENT_FAULT,
    ) -> MeshError:
        """The failure of a rollout: ENVIRONMENT_FAULT, or VERIFIER_FAULT for a verifier's call."""
        owner = "verifier" if reason == _Reason.ERROR_REASON_VERIFIER_FAULT else "environment"
        return MeshError(
            reason,
            f"The environment {environment!r} failed in {stage}: {self}.",
            metadata={owner: environment, "stage": stage, "exception": type(self).__name__},
        )


class PeerLost(PeerFault):
    """The process is gone, or was killed because it hung or broke the protocol."""


class PeerTimeout(PeerFault):
    """The call took longer than its time."""


class PeerRaised(PeerFault):
    """The script's method raised. `kind`: the exception's type; `message`: its text."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(f"{kind}: {message}" if message else kind)
