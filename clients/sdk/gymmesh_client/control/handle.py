"""What a run must offer to be steered."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from gymmesh.run.v1 import run_pb2


class RunHandle(Protocol):
    """One run of this process. Commands take effect before they return; RunStateError where the
    run's state does not allow one.
    """

    @property
    def run_id(self) -> str:
        """The run's id."""

    def snapshot(self) -> run_pb2.Run:
        """How far it is; identity, output and times included."""

    def pause(self) -> None:
        """Start no more rollouts for now."""

    def resume(self) -> None:
        """Go on."""

    def drain(self) -> None:
        """Let what is in flight end, then stop."""

    def cancel(self) -> None:
        """Cancel what is in flight, then stop."""

    def tune(self, *, concurrency: int | None) -> None:
        """Change settings; None: as it is."""

    def cancel_group(self, task_id: str) -> None:
        """Cancel the rollouts of a task."""

    def groups(
        self, after_cursor: int, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups; MeshError NOT_OFFERED when the run keeps none."""
