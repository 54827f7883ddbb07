"""Verdicts on workspaces, in real sandboxes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text import describe
from tests.unit.environments.workspace.desk import Desk, desk
from tests.unit.resource.served import task

PLACES = ("same", "fresh", "snapshot")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Desk]:
    folder = tmp_path / "tasks"
    (folder / "repo" / "src").mkdir(parents=True)
    (folder / "repo" / "src" / "a.txt").write_text("from the folder\n")
    async with desk(tmp_path, folder=str(folder)) as made:
        yield made


def parts(verification: rollout_pb2.Verification) -> dict[str, float]:
    return {one.name: one.value for one in verification.components}


@pytest.mark.parametrize("verify_in", PLACES)
async def test_what_the_agent_did_is_judged(bench: Desk, verify_in: str) -> None:
    row: dict[str, Any] = {
        "files": {"a.txt": "one\n", "run": {"content": "#!/bin/sh\necho ran\n", "mode": "755"}},
        "folder": "repo",
        "setup": ["echo set up >>made.txt"],
        "checks": [
            {"name": "two", "run": "grep -q two a.txt", "weight": 3},
            {"name": "runs", "run": "./run", "prints": "ran"},
            {"name": "folder", "run": "grep -q folder src/a.txt"},
            {"name": "setup", "run": "test $(wc -l <made.txt) = 1 && test ! -e gone"},
        ],
        "verify_in": verify_in,
    }
    did = await bench.rewarded("echo two >>a.txt; touch gone; rm gone", **row)
    assert did.reward == 1.0, did
    nothing = await bench.rewarded("exit 0", **row)
    assert nothing.reward == pytest.approx(0.5)
    assert parts(nothing) == {"two": 0.0, "runs": 1.0, "folder": 1.0, "setup": 1.0}
    assert nothing.explanation == "3 of 4 checks passed; two ended with exit code 1"


@pytest.mark.parametrize("verify_in", PLACES)
async def test_tests_are_there_only_when_the_agent_has_ended(bench: Desk, verify_in: str) -> None:
    """Nor does a process that waits for them see them, or what the agent put in their place."""
    row: dict[str, Any] = {
        "tests": {"files": {"check.sh": "test -e /tests/check.sh && test -e done && cat"}},
        "checks": [
            {"name": "hidden", "run": "test ! -e seen"},
            {"name": "done", "run": "sh /tests/check.sh", "prints": "{secret}"},
            {"name": "clean", "run": "test ! -e /tests/conftest.py && test ! -e changed"},
        ],
        "verify_in": verify_in,
    }
    waits = (
        "test -e /tests/check.sh && touch seen; mkdir -p /tests; touch /tests/conftest.py; "
        "(while :; do test -e /tests/check.sh && touch changed; sleep 0.01; done) "
        ">/dev/null 2>&1 & touch done"
    )
    verdict = await bench.rewarded(waits, **row)
    assert parts(verdict) == {"hidden": 1.0, "done": 1.0, "clean": 1.0}, verdict


@pytest.mark.parametrize(
    ("run", "note"),
    [
        ("exit 3", "ended with exit code 3"),
        ("kill -SEGV $$", "was ended by signal 11"),
        ("kill -KILL $$", "was killed (signal 9)"),
        ("while :; do :; done", "used more than"),
        ("sleep 100", "took longer than 0.5 s"),
    ],
)
async def test_what_a_check_does_is_its_score(bench: Desk, run: str, note: str) -> None:
    check = {"name": "c", "run": run, "timeout_s": 0.5}
    verdict = await bench.rewarded(checks=[check])
    assert verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    assert verdict.reward == 0.0
    said = json.loads(verdict.evidence_json)["checks"]["c"]["note"]
    assert note in said or (run.startswith("while") and "took longer" in said)


async def test_an_exit_code_and_a_print_that_anyone_can_make_are_not_enough(bench: Desk) -> None:
    row = {
        "files": {"work.py": ""},
        "tests": {"files": {"t.py": "import sys\nsys.path.insert(0, '.')\nimport work\n"
                                    "assert work.f() == 4\nprint(input())\n"}},
        "checks": [{"run": "python3 -B /tests/t.py", "prints": "{secret}"}],
    }  # fmt: skip
    for program in ("import os; os._exit(0)", "raise SystemExit", "print('{secret}'); exit()"):
        assert (await bench.rewarded(f'echo "{program}" >work.py', **row)).reward == 0.0
    right = "printf 'def f():\\n    return 4\\n' >work.py"
    assert (await bench.rewarded(right, **row)).reward == 1.0


async def test_a_reward_file_gives_partial_credit(bench: Desk) -> None:
    for written, reward in (("0.25", 0.25), ('{"reward": 0.5, "lines": 12}', 0.5), ("1", 1.0)):
        check = {"name": "c", "run": f"printf '{written}' >/tmp/r; exit 4", "reward_file": "/tmp/r"}
        verdict = await bench.rewarded(checks=[check])
        assert verdict.reward == reward
    assert parts(await bench.rewarded(checks=[
        {"name": "c", "run": "echo '{\"reward\": 1, \"n\": 3}' >/tmp/r", "reward_file": "/tmp/r"}
    ])) == {"c": 1.0, "c.n": 3.0}  # fmt: skip


@pytest.mark.parametrize("written", ["", "2", "-1", "nan", "true", '{"a": 1, "b": 2}', "x"])
async def test_no_reward_in_the_file_is_a_fault_and_not_0(bench: Desk, written: str) -> None:
    check = {"name": "c", "run": f"printf '{written}' >/tmp/r", "reward_file": "/tmp/r"}
    with pytest.raises(MeshError) as failed:
        await bench.rewarded(checks=[check])
    assert failed.value.reason_name == "VERIFIER_FAULT", describe(failed.value)


async def test_what_the_agent_wrote_to_the_reward_file_is_not_read(bench: Desk) -> None:
    check = {"name": "c", "run": "true", "reward_file": "reward"}
    with pytest.raises(MeshError) as failed:
        await bench.rewarded("echo 1 >reward", checks=[check], verify_in="same")
    assert failed.value.reason_name == "VERIFIER_FAULT"


async def test_a_lost_sandbox_is_a_failure_and_not_0(bench: Desk) -> None:
    of = task(checks=[{"run": "true"}], verify_in="same")
    session = (await bench.create(of)).session_id
    directory_peer: Any = bench.sandboxes.servicers()["gymmesh.sandbox.v1.SandboxService"]
    listed = await directory_peer.ListSandboxes(sandbox_pb2.ListSandboxesRequest(), None)
    for one in listed.sandboxes:
        await directory_peer.RemoveSandbox(
            sandbox_pb2.RemoveSandboxRequest(sandbox_id=one.sandbox.sandbox_id), None
        )
    with pytest.raises(MeshError) as failed:
        await bench.verify(session, of)
    assert failed.value.reason_name in ("SANDBOX_LOST", "SANDBOX_NOT_FOUND")


async def test_a_setup_that_fails_is_the_tasks_fault(bench: Desk) -> None:
    with pytest.raises(MeshError) as failed:
        await bench.create(task(checks=[{"run": "true"}], setup=["echo no such thing; exit 7"]))
    assert failed.value.reason_name == "TASK_INVALID"
    assert failed.value.metadata["field"] == "setup[0]"
    assert "exit 7: no such thing" in failed.value.message
    with pytest.raises(MeshError, match="failed in the sandbox, exit 1, without output"):
        await bench.create(task(checks=[{"run": "true"}], setup=["false"]))


async def test_a_verdict_can_be_asked_for_twice(bench: Desk) -> None:
    of = task(checks=[{"run": "test -e done"}])
    session = (await bench.create(of)).session_id
    await bench.call(session, "shell", {"command": "touch done"})
    assert (await bench.verify(session, of)).reward == 1.0
    assert (await bench.verify(session, of)).reward == 1.0
    await bench.close(session)


async def test_a_workspace_that_is_too_large_earns_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path, workspace_mb=1) as small:
        verdict = await small.rewarded(
            "head -c 3000000 /dev/urandom >large", checks=[{"run": "true"}]
        )
    assert verdict.reward == 0.0
    assert verdict.explanation == "the workspace's archive is larger than 1 MiB"


async def test_a_workspace_that_the_service_does_not_pack_earns_nothing(bench: Desk) -> None:
    verdict = await bench.rewarded("truncate -s 50G large", checks=[{"run": "true"}])
    assert verdict.reward == 0.0
    assert verdict.explanation == (
        "the workspace's files are larger than 1073741824 bytes, the limit max_archive_bytes of "
        "the sandbox service"
    )


async def test_what_the_agent_closed_is_judged_all_the_same(bench: Desk) -> None:
    closes = "mkdir shut; echo done >shut/file; chmod 000 shut/file shut"
    check = {"run": "chmod 700 shut; chmod 600 shut/file; grep -q done shut/file"}
    assert (await bench.rewarded(closes, checks=[check])).reward == 1.0


async def test_the_shell_shows_what_a_command_wrote_and_how_it_ended(bench: Desk) -> None:
    of = task(checks=[{"run": "true"}])
    session = (await bench.create(of)).session_id

    async def shell(command: str) -> str:
        return (await bench.call(session, "shell", {"command": command})).text.decode()

    assert await shell("echo a; echo b >&2") == "a\nb\n"
    assert await shell("echo a; exit 2") == "a\n\n(exit 2)"
    long = await shell("seq 1 100000")
    assert len(long) < 17_000
    assert long.startswith("1\n2\n")
    assert long.endswith("100000\n")
    await bench.close(session)


async def test_no_sandbox_is_left(bench: Desk) -> None:
    for verify_in in PLACES:
        await bench.rewarded(
            "sleep 1000 >/dev/null 2>&1 &", checks=[{"run": "true"}], verify_in=verify_in
        )
    servicer: Any = bench.sandboxes.servicers()["gymmesh.sandbox.v1.SandboxService"]
    assert not (await servicer.ListSandboxes(sandbox_pb2.ListSandboxesRequest(), None)).sandboxes
