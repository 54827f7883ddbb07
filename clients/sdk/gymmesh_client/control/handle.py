"""What a run must offer to be steered."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from gymmesh.run.v1 import run_pb2


class RunHandle(Protocol):
    """One run of this process.

    The commands are those of `ControlRun` in run.proto. They take effect before they return;
    RunStateError where the run's state does not allow one.
    """

    @property
    def run_id(self) -> str: ...
    def snapshot(self) -> run_pb2.Run:
        """How far it is; identity, output and times included."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def drain(self) -> None: ...
    def cancel(self) -> None: ...
    def tune(self, *, concurrency: int | None) -> None:
        """Change settings; None: as it is."""

    def cancel_group(self, task_id: str) -> None: ...
    def groups(
        self, after_cursor: int, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups; MeshError NOT_OFFERED when the run keeps none."""
