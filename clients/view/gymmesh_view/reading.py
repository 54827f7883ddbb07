"""The parts of the page's API, as JSON values: the answers of the server and the contents of a
bundle.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from gymmesh_client import UserError
from gymmesh_client.control import read_entries
from gymmesh_client.row_files import DamagedRow, RowPlace, damaged_row, line_number, read_line
from gymmesh_data import StoredRollout
from gymmesh_data.rollout import rollout_of_line
from gymmesh_responses import dumps
from gymmesh_view.index import Store
from gymmesh_view.rollout import detail_of, spells, thread_of, tokens_of, traced
from gymmesh_view.rows import Json, ViewSource, clean
from gymmesh_view.vocabulary import Vocabulary, find_tokenizer, read_vocabulary

_NO_TOKENIZER: Final = (
    "No tokenizer.json was found in the folder of the rows. To show the tokens as text, pass the "
    "model's tokenizer.json: gym-cli view --tokenizer PATH"
)


class Reading:
    """Answers the page's questions from an index and from the rows themselves.

    Args:
        vocabulary: the vocabulary for token ids. None: the tokenizer.json beside the rows, if there
            is one.
    """

    def __init__(
        self, store: Store, sources: Sequence[ViewSource], vocabulary: Vocabulary | None = None
    ) -> None:
        self.store = store
        self.sources = sources
        self._vocabulary = vocabulary
        self._beside: dict[Path, Vocabulary] = {}
        self._beside_lock = threading.Lock()

    def status(self) -> Json:
        """The progress of the index, and the shown sources, each run with its `state` (see
        `run_state`).
        """
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
        """One rollout, in all its parts. Raises UserError if it does not exist."""
        summary, place = self.store.place(key)
        rollout = self._rollout(place)
        detail = detail_of(rollout)
        run = self.sources[place.source].run if place.source < len(self.sources) else None
        if run is not None and rollout.rollout_id:
            spans = traced(run.rows, rollout.rollout_id, summary["attempt"])
            detail["timeline"]["spans"] = spans
        return {"summary": summary} | detail

    def tokens(self, key: str, call: int, thread: int = 0) -> Json:
        """The sampled tokens of a model call, see `tokens_of`, with their texts if the row or a
        vocabulary has them. `tokenizer`: the file of the vocabulary; empty if the texts are from
        the row. `problem`: why there are no texts, or why the texts may be wrong.

        Raises UserError if the rollout does not exist.

        Args:
            thread: the conversation. 0 is the root agent's; others are numbered as in `rollout`.
        """
        _, place = self.store.place(key)
        rollout = self._rollout(place)
        spoken = thread_of(rollout, thread) if thread else rollout
        found = tokens_of(rollout if spoken is None else spoken, -1 if spoken is None else call)
        said = found.pop("said")
        found |= {"tokenizer": "", "problem": ""}
        if found["texts"] is not None or not found["ids"]:
            return found
        try:
            vocabulary = self._vocabulary or self._vocabulary_of(place)
        except UserError as error:
            # A bundle must name no folder of this machine.
            return found | {"problem": str(error).replace(f"{place.path.parent}/", "")}
        if vocabulary is None:
            return found | {"problem": _NO_TOKENIZER}
        texts = vocabulary.texts(found["ids"])
        problem = "" if found["left"] else _doubt(vocabulary.name, texts, said)
        return found | {"texts": texts, "tokenizer": vocabulary.name, "problem": problem}

    def task(self, name: str) -> list[Json]:
        """The rollouts of a task by source, run and repeat. `run_id` is set only if a file has a
        repeat more than once, for example a file of several merged runs.
        """
        rows = self.store.repeats(name)
        counts = Counter((row["source"], row["repeat"]) for row in rows)
        merged = {source for (source, _), count in counts.items() if count > 1}
        for row in rows:
            row["run_id"] = self._run_id(row["key"]) if row["source"] in merged else ""
        return sorted(rows, key=lambda row: (row["source"], row["run_id"], row["repeat"]))

    def raw(self, key: str) -> bytes:
        """The row, unchanged. Raises UserError if it does not exist."""
        _, place = self.store.place(key)
        return self._line(place)

    def _run_id(self, key: str) -> str:
        try:
            return clean(self._rollout(self.store.place(key)[1]).run_id)
        except UserError:
            return ""  # the row is being replaced, and the page asks again

    def _vocabulary_of(self, at: RowPlace) -> Vocabulary | None:
        """The vocabulary beside the rows. Raises UserError where the file cannot be read."""
        file = find_tokenizer(at.path.parent)
        if file is None:
            return None
        with self._beside_lock:
            if file not in self._beside:
                self._beside[file] = read_vocabulary(file)
            return self._beside[file]

    def _rollout(self, at: RowPlace) -> StoredRollout:
        where = f"{at.path.name}: byte {at.place.offset + at.place.inner}"
        rollout = rollout_of_line(self._line(at), where)
        if clean(rollout.rollout_id) != at.rollout_id:
            raise UserError(f"{at.path} has changed and is being read again. Try again in a moment")
        return rollout

    def _line(self, at: RowPlace) -> bytes:
        try:
            return read_line(at)
        except DamagedRow:
            run = self.sources[at.source].run
            if run is None:
                raise
            raise damaged_row(at.path, line_number(run, at.place)) from None


def _doubt(name: str, texts: Sequence[str | None], said: Sequence[str]) -> str:
    """Why texts may be of another vocabulary than the model's; empty where nothing shows it."""
    unknown = sum(text is None for text in texts)
    if unknown:
        return (
            f"{name} has no text for {unknown} of {len(texts)} ids. The file may belong to another "
            "model."
        )
    if not spells(texts, said):
        return (
            f"The text that {name} gives these tokens does not contain the answer. The file may "
            "belong to another model."
        )
    return ""


def run_state(ended: Json | None, collected: bool) -> str:
    """The state of a run: `running`, `finished`, `ended early` or `not ended`. `not ended`: the
    collector was killed, or it was started without control and can't be found. `ended`: the entry
    about the run's end in its journal.
    """
    if ended is None:
        return "running" if collected else "not ended"
    return "ended early" if ended.get("interrupted") else "finished"


def to_json(value: Any) -> bytes:
    """A value as JSON that every browser reads. Non-finite numbers become null."""
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
