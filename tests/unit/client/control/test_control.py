"""Runs are found by the registry and steered by callers that hold the token, over real gRPC."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh_client.control import RunServer, RunServicer, find_run, open_runs
from gymmesh_client.control.registry import (
    RunEntry,
    read_entries,
    registry_folder,
    remove_entry,
    write_entry,
)
from gymmesh_client.control.servicer import AUTHORIZATION
from gymmesh_client.dispatch import RunStateError
from gymmesh_client.groups import ConsumerClaim
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

Reason = errors_pb2.ErrorReason


class TinyRun:
    """A run that notes what it is told."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.told: list[str] = []
        self.ending = False

    def snapshot(self) -> run_pb2.Run:
        return run_pb2.Run(run_id=self.run_id, completed=len(self.told))

    def pause(self) -> None:
        if self.ending:
            raise RunStateError("a run that is ending cannot be paused")
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def drain(self) -> None:
        self.told.append("drain")

    def cancel(self) -> None:
        self.told.append("cancel")

    def tune(self, *, concurrency: int | None) -> None:
        self.told.append(f"concurrency {concurrency}")

    def cancel_group(self, task_id: str) -> None:
        self.told.append(f"not {task_id}")

    async def groups(
        self, after_cursor: int, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        try:
            for cursor in range(after_cursor + 1, 4):
                yield run_pb2.StreamGroupsResponse(cursor=cursor)
        finally:
            self.told.append("no more groups")

    async def shared_groups(
        self, claim: ConsumerClaim, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        self.told.append(f"{claim.name} of {claim.consumers}")
        yield run_pb2.StreamGroupsResponse(cursor=1)

    async def acknowledge(self, consumer: str, incarnation: str, cursor: int) -> None:
        self.told.append(f"{consumer or 'the reader'} has {cursor}")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))


COMMANDS = [
    (run_pb2.ControlRunRequest(pause=run_pb2.PauseRun()), "pause"),
    (run_pb2.ControlRunRequest(resume=run_pb2.ResumeRun()), "resume"),
    (run_pb2.ControlRunRequest(drain=run_pb2.DrainRun()), "drain"),
    (run_pb2.ControlRunRequest(cancel=run_pb2.CancelRun()), "cancel"),
    (run_pb2.ControlRunRequest(tune=run_pb2.TuneRun(concurrency=9)), "concurrency 9"),
    (run_pb2.ControlRunRequest(tune=run_pb2.TuneRun()), "concurrency None"),
    (run_pb2.ControlRunRequest(cancel_group=run_pb2.CancelGroup(task_id="t")), "not t"),
]


async def test_a_run_is_found_looked_at_and_steered() -> None:
    one, other = TinyRun("run-aa1"), TinyRun("run-ab2")
    async with RunServer() as server:
        server.add(one, "one.jsonl")
        server.add(other, "other.jsonl")
        async with open_runs() as runs:
            assert sorted((run.run_id, run.output) for run in runs) == [
                ("run-aa1", "one.jsonl"),
                ("run-ab2", "other.jsonl"),
            ]
            run = find_run(runs, "run-aa")
            for request, _ in COMMANDS:
                after = await run.control(request)
                assert after.completed == len(one.told)
            assert one.told == [told for _, told in COMMANDS]
            assert (await run.get()).completed == len(COMMANDS)
            async with aclosing(run.groups(1, timeout=60.0)) as groups:
                assert [group.cursor async for group in groups] == [2, 3]
    assert not other.told
    async with open_runs() as runs:
        assert not runs


async def test_what_is_not_allowed_or_not_said_is_refused() -> None:
    one = TinyRun("run-1")
    one.ending = True
    async with RunServer() as server:
        server.add(one, "")
        async with open_runs() as runs:
            for request, reason in (
                (run_pb2.ControlRunRequest(pause=run_pb2.PauseRun()), "RUN_STATE"),
                (run_pb2.ControlRunRequest(), "REQUIRED_FIELD_MISSING"),
                (
                    run_pb2.ControlRunRequest(cancel_group=run_pb2.CancelGroup()),
                    "REQUIRED_FIELD_MISSING",
                ),
            ):
                with pytest.raises(MeshError) as caught:
                    await runs[0].control(request)
                assert caught.value.reason_name == reason
    assert not one.told


@pytest.mark.parametrize("metadata", [{}, {"authorization": "Bearer guess"}])
async def test_without_the_token_nothing_is_said(metadata: dict[str, str]) -> None:
    one = TinyRun("run-1")
    directory = PeerDirectory()
    async with RunServer() as server:
        server.add(one, "")
        (entry,) = read_entries()
        peer: Any = directory.plain_peer(entry.address, "gymmesh.run.v1.RunService")
        calls = [
            peer.ListRuns(run_pb2.ListRunsRequest(), timeout=60, metadata=metadata),
            peer.GetRun(run_pb2.GetRunRequest(run_id="run-1"), timeout=60, metadata=metadata),
            peer.ControlRun(
                run_pb2.ControlRunRequest(run_id="run-1", cancel=run_pb2.CancelRun()),
                timeout=60,
                metadata=metadata,
            ),
            peer.AcknowledgeGroups(
                run_pb2.AcknowledgeGroupsRequest(run_id="run-1", cursor=1),
                timeout=60,
                metadata=metadata,
            ),
            anext(
                peer.StreamGroups(
                    run_pb2.StreamGroupsRequest(run_id="run-1"), timeout=60, metadata=metadata
                )
            ),
        ]
        for call in calls:
            with pytest.raises(MeshError) as caught:
                await call
            assert caught.value.reason == Reason.ERROR_REASON_CREDENTIAL_INVALID
            assert entry.token not in str(caught.value)
        await directory.close()
    assert not one.told


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("StreamGroups", run_pb2.StreamGroupsRequest(consumers=2), "consumer"),
        ("StreamGroups", run_pb2.StreamGroupsRequest(incarnation="x"), "consumer"),
        ("AcknowledgeGroups", run_pb2.AcknowledgeGroupsRequest(), "cursor"),
        (
            "AcknowledgeGroups",
            run_pb2.AcknowledgeGroupsRequest(cursor=1, consumer="rank-0"),
            "incarnation",
        ),
        (
            "AcknowledgeGroups",
            run_pb2.AcknowledgeGroupsRequest(cursor=1, incarnation="x"),
            "consumer",
        ),
    ],
)
async def test_what_a_consumer_must_say(method: str, request_: Any, field: str) -> None:
    one = TinyRun("run-1")
    directory = PeerDirectory()
    async with RunServer() as server:
        server.add(one, "")
        (entry,) = read_entries()
        peer: Any = directory.plain_peer(entry.address, "gymmesh.run.v1.RunService")
        request_.run_id = "run-1"
        shown = {"authorization": f"Bearer {entry.token}"}
        call = getattr(peer, method)(request_, timeout=60, metadata=shown)
        with pytest.raises(MeshError) as caught:
            await (anext(call) if method == "StreamGroups" else call)
        assert caught.value.reason == Reason.ERROR_REASON_REQUIRED_FIELD_MISSING
        assert caught.value.metadata["field"] == field
        await directory.close()
    assert not one.told


async def test_runs_are_listed_newest_first_a_page_at_a_time() -> None:
    directory = PeerDirectory()
    async with RunServer() as server:
        for number in range(5):
            server.add(TinyRun(f"run-{number}"), "")
        entry = next(read_entries())
        peer: Any = directory.plain_peer(entry.address, "gymmesh.run.v1.RunService")
        shown = {"authorization": f"Bearer {entry.token}"}
        seen, token = [], ""
        while True:
            request = run_pb2.ListRunsRequest(page_size=2, page_token=token)
            page = await peer.ListRuns(request, timeout=60, metadata=shown)
            seen += [run.run_id for run in page.runs]
            token = page.next_page_token
            if not token:
                break
        assert seen == [f"run-{number}" for number in range(4, -1, -1)]
        for request in (
            run_pb2.ListRunsRequest(page_token="none"),
            run_pb2.ListRunsRequest(page_size=-1),
        ):
            with pytest.raises(MeshError) as caught:
                await peer.ListRuns(request, timeout=60, metadata=shown)
            assert caught.value.reason == Reason.ERROR_REASON_FIELD_INVALID
        with pytest.raises(MeshError) as caught:
            await peer.GetRun(run_pb2.GetRunRequest(run_id="x"), timeout=60, metadata=shown)
        assert caught.value.reason == Reason.ERROR_REASON_RUN_NOT_FOUND
        await directory.close()


async def test_which_run_is_meant_must_be_clear() -> None:
    async with RunServer() as server, open_runs() as none:
        with pytest.raises(MeshError, match="no active run"):
            find_run(none, "")
        server.add(TinyRun("run-aa"), "")
        async with open_runs() as runs:
            assert find_run(runs, "").run_id == "run-aa"
            with pytest.raises(
                MeshError, match="no active run has the id 'x'; active runs: run-aa"
            ):
                find_run(runs, "x")
        server.add(TinyRun("run-ab"), "")
        async with open_runs() as runs:
            assert find_run(runs, "run-ab").run_id == "run-ab"
            with pytest.raises(MeshError, match="2 runs fit 'run-a'; choose one of"):
                find_run(runs, "run-a")
            with pytest.raises(MeshError, match="2 runs are active; choose one of"):
                find_run(runs, "")


def test_an_entry_is_its_owners_alone() -> None:
    entry = RunEntry("run-1", "127.0.0.1:1", "secret", os.getpid(), "out.jsonl")
    path = write_entry(entry)
    assert path.stat().st_mode & 0o777 == 0o600
    assert registry_folder().stat().st_mode & 0o777 == 0o700
    assert list(read_entries()) == [entry]
    path.chmod(0o644)
    assert not list(read_entries()), "others could have written or read it"
    registry_folder().chmod(0o777)
    write_entry(entry)
    assert registry_folder().stat().st_mode & 0o777 == 0o700
    assert registry_folder().parent.stat().st_mode & 0o022 == 0


def test_entries_of_dead_processes_and_damaged_ones_are_passed_over() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait(10)
    dead = write_entry(RunEntry("run-1", "127.0.0.1:1", "t", child.pid, ""))
    damaged = write_entry(RunEntry("run-2", "127.0.0.1:1", "t", os.getpid(), ""))
    damaged.write_text("{")
    assert not list(read_entries())
    assert not dead.exists()


def test_an_entry_written_anew_is_not_removed() -> None:
    first = RunEntry("run-1", "127.0.0.1:1", "old", os.getpid(), "")
    write_entry(first)
    second = RunEntry("run-1", "127.0.0.1:2", "new", os.getpid(), "")
    write_entry(second)
    remove_entry(first)
    assert list(read_entries()) == [second]
    remove_entry(second)
    assert not list(read_entries())


@pytest.mark.parametrize("run_id", ["../../evil", "/tmp/evil", "", ".x", "a/b", "a\x1b[2J"])
def test_an_id_from_elsewhere_leads_out_of_no_folder(run_id: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="is not a run id"):
        write_entry(RunEntry(run_id, "127.0.0.1:1", "t", os.getpid(), "out.jsonl"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "changed", [{"run_id": "../x"}, {"pid": -1}, {"pid": "1"}, {"token": 7}, {"address": None}]
)
def test_an_entry_of_other_kinds_is_passed_over(changed: dict[str, Any]) -> None:
    path = write_entry(RunEntry("run-1", "127.0.0.1:1", "t", os.getpid(), "out.jsonl"))
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert list(read_entries()) == []


async def test_a_stream_of_groups_that_is_closed_closes_the_runs_own() -> None:
    servicer, run = RunServicer("t"), TinyRun("run-a")
    servicer.add(run)
    context = CallContext("StreamGroups", metadata={AUTHORIZATION: "Bearer t"})
    async with aclosing(
        servicer.StreamGroups(run_pb2.StreamGroupsRequest(run_id="run-a"), context)
    ) as groups:
        assert (await anext(groups)).cursor == 1
        assert not run.told
    assert run.told == ["no more groups"]
