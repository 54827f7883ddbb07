"""Whatever the moment of a kill or a power cut: no acknowledged outcome is lost or doubled."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gymmesh_client.index import open_run
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.log_records import COMPLETED, FAILED, RETRY, Reserved, RunOpened
from gymmesh_client.output.compaction import compact
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_id, rollout_key
from tests.unit.client.journal.crashing import CrashingDisk, PowerCut

pytestmark = pytest.mark.long

ROLLOUTS = [(f"t-{number}", 0) for number in range(12)]
Current = dict[bytes, bytes]


class OutcomesSurvive(RuleBasedStateMachine):
    """The model is the rows of the current outcomes that were acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.disk = CrashingDisk()
        self.current: Current = {}
        self.attempts: dict[bytes, int] = {}
        self.journal: Journal | None = None

    @initialize(shard_rows=st.sampled_from([None, 1, 3]), zstd=st.booleans())
    def begin(self, shard_rows: int | None, zstd: bool) -> None:
        self.files = OutputFiles(self.folder / "out.jsonl", shard_rows, zstd)
        info = {"run_id": "r", "shard_rows": shard_rows, "zstd": zstd}
        self.journal = Journal.create(self.files, info, self.disk)

    @rule(
        chosen=st.sets(st.sampled_from(ROLLOUTS), min_size=1, max_size=4),
        failed=st.booleans(),
        text=st.text(max_size=30),
        stop_after=st.none() | st.integers(0, 5),
        data=st.data(),
    )
    def write(
        self,
        chosen: set[tuple[str, int]],
        failed: bool,
        text: str,
        stop_after: int | None,
        data: st.DataObject,
    ) -> None:
        assert self.journal is not None
        entries, after, attempts = [], dict(self.current), dict(self.attempts)
        for task, repeat in sorted(chosen):
            name = rollout_id("r", task, repeat)
            key = rollout_key(name)
            if key in after:
                continue
            attempts[key] = attempts.get(key, 0) + 1
            row = json.dumps({"rollout_id": name, "attempt": attempts[key], "text": text}).encode()
            entries.append(
                NewOutcome(key, attempts[key], FAILED if failed else COMPLETED, 2 * failed, row)
            )
            after[key] = row
        if not entries:
            return
        with_crash = self.attempted(after, attempts, stop_after, data)
        with with_crash:
            self.journal.commit([Reserved(tuple((one.key, one.attempt) for one in entries))])
            with_crash.numbered = True
            self.journal.commit(entries)

    @precondition(lambda self: bool(self.current))
    @rule(data=st.data(), stop_after=st.none() | st.integers(0, 9))
    def retry(self, data: st.DataObject, stop_after: int | None) -> None:
        assert self.journal is not None
        keys = data.draw(st.sets(st.sampled_from(sorted(self.current)), min_size=1, max_size=3))
        after = {key: row for key, row in self.current.items() if key not in keys}
        with self.attempted(after, dict(self.attempts), stop_after, data):
            self.journal.supersede(self.journal.current(lambda one: one.key in keys), RETRY)

    @rule(data=st.data(), stop_after=st.none() | st.integers(0, 16))
    def compact(self, data: st.DataObject, stop_after: int | None) -> None:
        assert self.journal is not None
        with self.attempted(self.current, self.attempts, stop_after, data):
            compact(self.journal)
            assert self.rows_in_files() == sorted(self.current.values())

    @precondition(lambda self: self.journal is not None and self.journal.state.superseded)
    @rule(data=st.data())
    def read_amid_a_compaction(self, data: st.DataObject) -> None:
        """A reader that comes when a collector was killed, before it goes on."""
        assert self.journal is not None
        self.disk.stop_after = data.draw(st.integers(0, 16))
        try:
            compact(self.journal)
        except PowerCut:
            self.readers_see_the_same()
        finally:
            self.disk.stop_after = None
        self.journal.close()
        self.journal = Journal.resume(self.files, self.disk)

    @rule(data=st.data())
    def lose_power_at_rest(self, data: st.DataObject) -> None:
        with self.attempted(self.current, self.attempts, None, data):
            raise PowerCut

    @rule()
    def reopen(self) -> None:
        assert self.journal is not None
        self.journal.commit([RunOpened({**self.journal.state.session})])
        self.journal.close()
        self.journal = Journal.resume(self.files, self.disk)

    def attempted(
        self,
        after: Current,
        attempts: dict[bytes, int],
        stop_after: int | None,
        data: st.DataObject,
    ) -> _Attempted:
        return _Attempted(self, after, attempts, stop_after, data)

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        if self.journal is None:
            return
        if not self.journal.state.superseded:
            assert self.rows_in_files() == sorted(self.current.values())
        for task, repeat in ROLLOUTS:
            key = rollout_key(rollout_id("r", task, repeat))
            assert bool(self.journal.state.status(key)) == (key in self.current)
            assert self.journal.state.attempt(key) >= self.attempts.get(key, 0)

    @invariant()
    def readers_see_the_same(self) -> None:
        if self.journal is None:
            return
        with open_run(self.files.rows) as run:
            for task, repeat in ROLLOUTS:
                name = rollout_id("r", task, repeat)
                assert run.line(name) == self.current.get(rollout_key(name))
            both = [*run.rows(), *run.failures()]
            assert len(both) == len(self.current)

    def rows_in_files(self) -> list[bytes]:
        """All rows, as somebody reads them who knows nothing of a journal."""
        found = []
        for path in [*self.files.all_shards(), self.files.failures]:
            raw = path.read_bytes() if path.exists() else b""
            if path.suffix == ".zst":
                reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                raw = reader.read()
            else:
                # Nothing but whole rows, for the simplest of readers.
                assert not raw or (raw.endswith(b"\n") and all(map(json.loads, raw.splitlines())))
            found += [line.strip() for line in raw.splitlines() if line.strip()]
            for line in raw.splitlines():
                assert not line.strip() or json.loads(line)
        return sorted(found)

    def teardown(self) -> None:
        if self.journal is not None:
            self.journal.close()
        shutil.rmtree(self.folder)


class _Attempted:
    """Something is tried, perhaps with a kill or a power cut: all of it happened, or nothing."""

    def __init__(
        self,
        machine: OutcomesSurvive,
        after: Current,
        attempts: dict[bytes, int],
        stop_after: int | None,
        data: st.DataObject,
    ) -> None:
        self.machine, self.after, self.attempts, self.data = machine, after, attempts, data
        self.numbered = False
        machine.disk.stop_after = stop_after

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        machine = self.machine
        machine.disk.stop_after = None
        before = machine.current
        if error is None:
            machine.current, machine.attempts = self.after, self.attempts
            return False
        if not isinstance(error, PowerCut):
            return False
        assert machine.journal is not None
        machine.journal.close()
        # A kill leaves what was written, on disk or not; power may be lost later.
        if self.data.draw(st.booleans()):
            machine.disk.lose_power(
                lambda size: self.data.draw(st.integers(0, size)),
                backwards=self.data.draw(st.booleans()),
            )
        machine.journal = Journal.resume(machine.files, machine.disk)
        current = {key for key in before | self.after if machine.journal.state.status(key)}
        assert current in (before.keys(), self.after.keys())
        machine.current = self.after if current == self.after.keys() else before
        if self.numbered:
            machine.attempts = self.attempts
        return True


OutcomesSurvive.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestOutcomesSurvive = OutcomesSurvive.TestCase
