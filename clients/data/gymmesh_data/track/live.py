"""Tracks a run while its collector runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from gymmesh_client import OutputError
from gymmesh_client.run_file import RunDocument, read_run_file, write_document
from gymmesh_data.rollout import object_of
from gymmesh_data.track.link import TrackerLink
from gymmesh_data.track.measures import Recent, figures_of, measures_at_end, measures_of
from gymmesh_data.track.names import TrackerRun, configuration_of, project_of
from gymmesh_data.track.samples import COLUMNS, Reservoir, TableRow, sample_of
from gymmesh_runtime.timers import cancel_and_wait

if TYPE_CHECKING:
    from gymmesh_client import Figures, RunOutput, RunSummary

_EVERY_S: Final = 10.0


class Tracking:
    """A run at a tracker.

    Args:
        output: the run's output; its rows are read as they are written.
        project: the tracker's project; None: see `names.project_of`.
        samples: the maximum number of rollouts in a table; 0: no table.
    """

    def __init__(
        self,
        link: TrackerLink,
        output: RunOutput,
        *,
        project: str | None = None,
        samples: int = 32,
    ) -> None:
        self.link = link
        self._output = output
        self._project = project_of(link.tracker, project)
        self._samples: Reservoir[TableRow] = Reservoir(samples)
        self._table_at = 1
        self._recent = Recent()
        self._summary: RunSummary | None = None
        output.on_row = self._see

    @asynccontextmanager
    async def live(
        self,
        figures: Callable[[], Figures],
        groups: Callable[[], Mapping[str, int] | None] = lambda: None,
    ) -> AsyncIterator[None]:
        """Tracks the run while the context is open, then ends the run at the tracker."""
        shard, run_id = self._output.shard, self._output.run_id
        name = run_id if shard is None else f"{run_id}-shard-{shard.index}-of-{shard.of}"
        run = TrackerRun(self._project, name, run_id, self._config(), id=self._known_id())
        await self.link.begin(run, self._keep)

        async def keep_sending() -> None:
            while True:
                await asyncio.sleep(_EVERY_S)
                self._send(figures(), groups())

        sending = asyncio.create_task(keep_sending())
        try:
            yield
        finally:
            await cancel_and_wait(sending)
            self._send(figures(), groups(), last=True)
            await self.link.end(self._config(), finished=figures().state == "finished")

    def sum_up(self, summary: RunSummary) -> None:
        """Set the run's result; call this before `live` ends."""
        self._summary = summary

    @property
    def lost(self) -> str:
        """A sentence on lost messages; empty if no message is known to be lost."""
        unread = self._recent.unread
        rows = (
            f"the metrics of some rows could not be read (number of rows: {unread})"
            if unread
            else ""
        )
        parts = [one for one in (self.link.loss, rows) if one]
        return f"{self.link.tracker}: {' and '.join(parts)}" if parts else ""

    def _known_id(self) -> str:
        """The tracker's id of this run, if an earlier session began it in the same project."""
        mine = object_of(object_of(self._about(), "trackers"), self.link.tracker)
        return str(mine.get("id") or "") if mine.get("project") == self._project else ""

    def _about(self) -> dict[str, Any]:
        return read_run_file(self._output.files.run, self._output.run_id)

    def _config(self) -> dict[str, Any]:
        return configuration_of(self._about())

    def _keep(self, begun: dict[str, Any]) -> None:
        """Keep the tracker's id of the run in NAME.run.json, for the session that resumes it."""
        about = self._about()
        mine = {key: str(begun[key]) for key in ("id", "url") if begun.get(key)}
        mine["project"] = self._project
        trackers = object_of(about, "trackers") | {self.link.tracker: mine}
        with suppress(OutputError):  # a disk that takes nothing more ends the run by itself
            if not self._output.closed:
                self._output.describe(trackers=trackers)
            elif about:  # the run was over before its tracker had begun
                document = RunDocument(about)
                document.say(trackers=trackers)
                write_document(self._output.files.run, document)

    def _see(self, row: bytes, completed: bool) -> None:
        if completed:
            self._recent.add(figures_of(row))
        place = self._samples.place()
        if place is not None and (sample := sample_of(row)) is not None:
            self._samples.put(place, sample)

    def _send(
        self, figures: Figures, groups: Mapping[str, int] | None, *, last: bool = False
    ) -> None:
        step = figures.tally.completed + figures.tally.failed
        values = measures_of(figures, groups) | self._recent.take()
        if last and self._summary is not None:
            values |= measures_at_end(self._summary)
        self.link.measures(step, values)
        # Each time that twice as many rollouts have ended, so that tables stay few.
        passed = self._samples.passed
        if self._samples.kept and (last or passed >= self._table_at):
            self._table_at = 2 * passed
            self.link.table(step, COLUMNS, self._samples.kept)
