"""How the sandboxes of a rollout end, as far as their users learn it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text import one_line, shortened

#: The word of an error's `cause` for each end that a service decides; any other is a loss.
_CAUSES: Final[Mapping[str, rollout_pb2.SandboxEndCause.ValueType]] = MappingProxyType(
    {
        "asked": rollout_pb2.SANDBOX_END_CAUSE_OWNER,
        "expired": rollout_pb2.SANDBOX_END_CAUSE_EXPIRED,
        "life": rollout_pb2.SANDBOX_END_CAUSE_LIFE,
        "out_of_memory": rollout_pb2.SANDBOX_END_CAUSE_OUT_OF_MEMORY,
        "removed": rollout_pb2.SANDBOX_END_CAUSE_REMOVED,
        "shutdown": rollout_pb2.SANDBOX_END_CAUSE_SHUTDOWN,
    }
)
_LONGEST: Final = 300
#: What an error says of the sandbox that it ended, beside the fields of SandboxRef.
_ROLE: Final = "role"


class SandboxEnds:
    """Notes how each sandbox ends, once: the first report counts.

    note: receives the report; raises nothing.
    """

    def __init__(self, note: Callable[[rollout_pb2.SandboxEnded], None]) -> None:
        self._note = note
        self._running: dict[str, grant_pb2.SandboxRef] = {}
        self._known: set[str] = set()

    def opened(self, ref: grant_pb2.SandboxRef) -> None:
        """A sandbox has started to run."""
        self._running[ref.sandbox_id] = ref
        self._known.add(ref.sandbox_id)

    def unknown(self, error: MeshError) -> rollout_pb2.SandboxOpened | None:
        """The sandbox that an error ended, if nothing has named it before; otherwise None."""
        if end_of(error) is None or error.metadata.get("sandbox_id") in self._known:
            return None
        return _opened_in(error)

    def ended(self, ref: grant_pb2.SandboxRef) -> None:
        """The sandbox's owner ends it now."""
        end = rollout_pb2.SandboxEnd(cause=rollout_pb2.SANDBOX_END_CAUSE_OWNER)
        self._end(ref.sandbox_id, end)

    def failed(self, error: MeshError) -> None:
        """An error occurred that may say that a sandbox is gone."""
        end = end_of(error)
        if end is not None:
            self._end(error.metadata.get("sandbox_id", ""), end)

    def reported(self, ended: rollout_pb2.SandboxEnded) -> None:
        """Another service reports how a sandbox ended."""
        self._end(ended.sandbox_id, ended.end)

    def _end(self, sandbox_id: str, end: rollout_pb2.SandboxEnd) -> None:
        ref = self._running.pop(sandbox_id, None)
        if ref is not None:
            self._note(
                rollout_pb2.SandboxEnded(
                    sandbox_id=sandbox_id, instance_id=ref.instance_id, end=end
                )
            )


def ref_metadata(ref: grant_pb2.SandboxRef, role: str) -> dict[str, str]:
    """The metadata by which an error names the sandbox that it ended; `unknown` reads it."""
    found = {field.name: str(value) for field, value in ref.ListFields()}
    return {**found, _ROLE: role} if role else found


def _opened_in(error: MeshError) -> rollout_pb2.SandboxOpened | None:
    """The sandbox that an error describes; None: the error only names it."""
    said = error.metadata
    if not said.get(_ROLE) or not said.get("sandbox_id"):
        return None
    known = grant_pb2.SandboxRef.DESCRIPTOR.fields_by_name
    ref = grant_pb2.SandboxRef(**{name: said[name] for name in known if name in said})
    return rollout_pb2.SandboxOpened(sandbox=ref, role=said[_ROLE])


def end_of(error: MeshError) -> rollout_pb2.SandboxEnd | None:
    """How the sandbox of an error ended; None: the error does not report an end."""
    if error.reason == errors_pb2.ERROR_REASON_SANDBOX_OUT_OF_MEMORY:
        cause = rollout_pb2.SANDBOX_END_CAUSE_OUT_OF_MEMORY
    elif error.reason == errors_pb2.ERROR_REASON_SANDBOX_LOST:
        said = error.metadata.get("cause", "")
        cause = _CAUSES.get(said, rollout_pb2.SANDBOX_END_CAUSE_LOST)
    else:
        return None
    return rollout_pb2.SandboxEnd(cause=cause, detail=shortened(one_line(error.message), _LONGEST))
