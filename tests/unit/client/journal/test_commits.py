"""Commits of new outcomes alone have a way of their own: it leaves what the general one leaves."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_client.journal.keys import rollout_key
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import COMPLETED, FAILED, RETRY, Outcome, Reserved
from gymmesh_client.journal.store import Entry, Journal, NewOutcome, Replace

OUTCOMES = st.builds(
    NewOutcome,
    st.integers(0, 60).map(lambda number: rollout_key(str(number))),
    st.integers(1, 5),
    st.sampled_from([COMPLETED, COMPLETED, FAILED]),
    st.integers(0, 7),
    st.binary(max_size=20).map(bytes.hex).map(str.encode),
)
LAYOUTS: dict[str, dict[str, Any]] = {
    "one file": {},
    "shards": {"shard_rows": 3},
    "zstd": {"zstd": True},
}


def left_by(
    folder: Path, layout: dict[str, Any], commits: list[list[Entry]], *, general: bool
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files that commits leave, and what the journal says then."""
    files = OutputFiles(folder / "out.jsonl", **layout)
    check = Journal._check

    def always_general(self: Journal, entries: list[Entry]) -> None:
        check(self, entries)

    with patch.object(time, "time_ns", lambda: 7):
        session = {
            "run_id": "r",
            "shard_rows": files.shard_rows,
            "zstd": files.compressed,
        }
        journal = Journal.create(files, session)
        with patch.object(Journal, "_check", always_general if general else check):
            for commit in commits:
                journal.commit(commit)
        said = said_by(journal)
        journal.close()
    resumed = Journal.resume(files)
    assert said_by(resumed) == said
    resumed.close()
    return {path.name: path.read_bytes() for path in folder.iterdir()}, said


def said_by(journal: Journal) -> dict[str, Any]:
    state = journal.state
    keys = [rollout_key(str(number)) for number in range(61)]
    return {
        "counts": dict(state.counts),
        "ends": dict(state.ends),
        "rows_in": dict(state.rows_in),
        "rollouts": [(state.status(key), state.attempt(key)) for key in keys],
    }


@pytest.mark.parametrize("layout", list(LAYOUTS))
@settings(max_examples=25)
@given(
    outcomes=st.lists(OUTCOMES, unique_by=lambda one: one.key, max_size=20),
    reserved=st.lists(OUTCOMES, max_size=5),
    size=st.integers(1, 8),
)
def test_new_outcomes_are_committed_as_anything_is(
    layout: str, outcomes: list[NewOutcome], reserved: list[NewOutcome], size: int
) -> None:
    commits: list[list[Entry]] = [[Reserved(tuple((one.key, one.attempt) for one in reserved))]]
    commits += [list(outcomes[at : at + size]) for at in range(0, len(outcomes), size)]
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        assert left_by(Path(one), LAYOUTS[layout], commits, general=False) == left_by(
            Path(other), LAYOUTS[layout], commits, general=True
        )


def test_nothing_is_done_of_a_commit_with_a_second_outcome(tmp_path: Path) -> None:
    journal = Journal.create(OutputFiles(tmp_path / "out.jsonl"), {"run_id": "r"})
    first, second = (NewOutcome(rollout_key(name), 1, COMPLETED, 0, b"{}") for name in "ab")
    journal.commit([first])
    said = said_by(journal)
    for entries in ([second, first], [second, second]):
        with pytest.raises(ValueError, match="two outcomes"):
            journal.commit(entries)
    assert (said_by(journal), journal.state.status(second.key)) == (said, 0)
    # One that takes the place of another is not alone, so it goes the general way.
    (old,) = journal.outcomes()
    assert isinstance(old, Outcome)
    journal.commit([Replace(old, RETRY, NewOutcome(first.key, 2, FAILED, 1, b"[]")), second])
    assert journal.state.counts == {COMPLETED: 1, FAILED: 1}
    journal.close()
