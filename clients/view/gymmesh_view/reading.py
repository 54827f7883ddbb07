"""The parts of the page's API, as JSON values: what the server answers and a bundle holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from gymmesh_client import UserError
from gymmesh_client.control import read_entries
from gymmesh_client.row_files import DamagedRow, RowPlace, damaged_row, line_number, read_line
from gymmesh_data import StoredRollout
from gymmesh_data.rollout import rollout_of_line
from gymmesh_responses import dumps
from gymmesh_view.index import Store
from gymmesh_view.rollout import detail_of, thread_of, tokens_of, traced
from gymmesh_view.rows import Json, ViewSource, clean


class Reading:
    """Answers the page's questions from an index and the rows themselves."""

    def __init__(self, store: Store, sources: Sequence[ViewSource]) -> None:
        self.store = store
        self.sources = sources

    def status(self) -> Json:
        """How far the index is, and what is shown: of each run its `state`, see `run_state`."""
        progress = self.store.progress()
        ended = progress.pop("ended", None) or [None] * len(self.sources)
        collected: set[Path] = set()
        if any(source.run is not None for source in self.sources):
            collected = {Path(entry.output).resolve() for entry in read_entries()}
        shown = [
            {
                "path": clean(str(source.path)),
                "run": source.run is not None,
                "state": run_state(said, source.path.resolve() in collected) if source.run else "",
            }
            for source, said in zip(self.sources, ended, strict=False)
        ]
        return progress | {"sources": shown}

    def rollout(self, key: str) -> Json:
        """One rollout, in all its parts. Raises UserError where there is none."""
        summary, place = self.store.place(key)
        rollout = self._rollout(place)
        detail = detail_of(rollout)
        run = self.sources[place.source].run if place.source < len(self.sources) else None
        if run is not None and rollout.rollout_id:
            spans = traced(run.rows, rollout.rollout_id, summary["attempt"])
            detail["timeline"]["spans"] = spans
        return {"summary": summary} | detail

    def tokens(self, key: str, call: int, thread: int = 0) -> Json:
        """The sampled tokens of a model call. Raises UserError where there is no such rollout.
        `thread`: the conversation: 0 is the root agent's, others are numbered as `rollout` does.
        """
        _, place = self.store.place(key)
        rollout = self._rollout(place)
        said = thread_of(rollout, thread) if thread else rollout
        return tokens_of(rollout if said is None else said, call if said is not None else -1)

    def raw(self, key: str) -> bytes:
        """The row as it stands in its file. Raises UserError where there is none."""
        _, place = self.store.place(key)
        return self._line(place)

    def _rollout(self, at: RowPlace) -> StoredRollout:
        where = f"{at.path.name}: byte {at.place.offset + at.place.inner}"
        rollout = rollout_of_line(self._line(at), where)
        if clean(rollout.rollout_id) != at.rollout_id:
            raise UserError(f"{at.path}: has changed; it is being read anew, so try again")
        return rollout

    def _line(self, at: RowPlace) -> bytes:
        try:
            return read_line(at)
        except DamagedRow:
            run = self.sources[at.source].run
            if run is None:
                raise
            raise damaged_row(at.path, line_number(run, at.place)) from None


def run_state(ended: Json | None, collected: bool) -> str:
    """`running`, `finished`, `ended early`, or `not ended`: its collector was killed, or is not to
    be found since it was started without control. `ended`: what the run's journal says of its end.
    """
    if ended is None:
        return "running" if collected else "not ended"
    return "ended early" if ended.get("interrupted") else "finished"


def to_json(value: Any) -> bytes:
    """A value as JSON that every browser reads; what is no finite number is null."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value
