"""Tests in a sandbox of their own: what comes there of the agent's, and what does not."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.harbor.artifacts import cleaned, is_excluded
from gymmesh_resource.environments.harbor.specs import TaskSpecs
from gymmesh_resource.environments.harbor.task_toml import read_harbor
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.harbor.made_tasks import (
    NEW,
    harbor_task,
    stepped_task,
    write_tasks,
)
from tests.unit.environments.harbor.test_steps import played
from tests.unit.environments.harbor.test_verdicts import opened

APART = '[verifier]\nenvironment_mode = "separate"\n'
# What a test finds counts one each.
TEST = """\
n=0
for one in /logs/artifacts/a /tmp/work/b/kept; do
  test "$(cat $one 2>/dev/null)" = 1 && n=$((n + 1))
done
for one in here.txt /tmp/left /tmp/work/b/dropped.log /logs/agent/c; do
  test ! -e $one && n=$((n + 1))
done
echo $n >/logs/verifier/reward.txt
"""
WORK = (
    "mkdir -p /tmp/work/b && cd /tmp/work/b && echo 1 >kept && echo 1 >dropped.log; "
    "echo 1 >/logs/artifacts/a; touch /logs/agent/c /tmp/left here.txt"
)


def apart(artifacts: str, test: str = TEST) -> dict[str, str]:
    return harbor_task(f"artifacts = {artifacts}\n{NEW}{APART}", test)


async def test_tests_get_the_artifacts_and_nothing_else(tmp_path: Path) -> None:
    artifacts = '[{source = "/tmp/work/b", exclude = ["*.log"]}, "/nothing"]'
    tasks = {"t": apart(artifacts)}
    async with opened(tmp_path, tasks) as desk:
        assert (await desk.rewarded(WORK, harbor="t")).reward == 6.0
        assert (await desk.rewarded(harbor="t")).reward == 4.0


async def test_an_artifact_is_a_file_or_a_folder_and_its_place_is_emptied(tmp_path: Path) -> None:
    test = 'test "$(cat /tmp/out/one)" = 1 && test "$(ls /tmp/out)" = one && r=1 || r=0\n'
    test += "echo $r >/logs/verifier/reward.txt\n"
    tasks = {"file": apart('["/tmp/out/one"]', test), "folder": apart('["/tmp/out"]', test)}
    async with opened(tmp_path, tasks) as desk:
        for name in tasks:
            work = "mkdir /tmp/out && echo 1 >/tmp/out/one"
            assert (await desk.rewarded(work, harbor=name)).reward == 1.0


async def test_the_agents_code_does_not_run_where_the_tests_do(tmp_path: Path) -> None:
    test = 'test "$(cat /tests/secret)" = "$(cat /logs/artifacts/answer)" && r=1 || r=0\n'
    test += "echo $r >/logs/verifier/reward.txt\n"
    task_files = apart("[]", test) | {"tests/secret": "42\n"}
    hostile = [
        "ln -s /tests/secret /logs/artifacts/answer",
        "cd /logs/artifacts && ln -s . y && ln -s y/y/../../../tests/secret answer",
        "cd /logs/artifacts && ln -s ../../tests/secret answer",
        "rm -r /logs/artifacts; ln -s /tests /logs/artifacts",
        "echo 1 >/logs/verifier/reward.txt; chmod 444 /logs/verifier/reward.txt",
        "(while :; do echo 1 >/logs/verifier/reward.txt; done) >/dev/null 2>&1 &",
    ]
    async with opened(tmp_path, {"t": task_files}) as desk:
        for work in hostile:
            assert (await desk.rewarded(work, harbor="t")).reward == 0.0, work
        assert (await desk.rewarded("echo 42 >/logs/artifacts/answer", harbor="t")).reward == 1.0


async def test_commands_collect_what_the_tests_want(tmp_path: Path) -> None:
    collect = '[[verifier.collect]]\ncommand = "cat state >/logs/artifacts/a; exit 1"\n'
    test = "test -f /logs/artifacts/a && cat /logs/artifacts/a >/logs/verifier/reward.txt\n"
    tasks = {"apart": harbor_task(f"{NEW}{APART}{collect}", test),
             "here": harbor_task(f"{NEW}{collect}", test)}  # fmt: skip
    async with opened(tmp_path, tasks) as desk:
        for name in tasks:
            assert (await desk.rewarded("echo 5 >state", harbor=name)).reward == 5.0


async def test_each_step_may_have_a_sandbox_for_its_tests(tmp_path: Path) -> None:
    files = {
        "steps/one/tests/test.sh": "cat /logs/artifacts/n >/logs/verifier/reward.txt\n",
        "steps/two/tests/test.sh": "cat n >/logs/verifier/reward.txt\n",
    }
    steps = {"one": '[steps.verifier]\nenvironment_mode = "separate"\n', "two": ""}
    async with opened(tmp_path, {"t": stepped_task(steps, **files)}) as desk:
        _, rewards, verdict = await played(
            desk, "t", "echo 4 >/logs/artifacts/n", "test ! -e /logs/artifacts/n && echo 2 >n"
        )
        assert (rewards, verdict.reward) == ([4.0], 3.0)


async def test_missing_rewards_are_failures_there_too(tmp_path: Path) -> None:
    async with opened(tmp_path, {"t": apart("[]", "exit 0\n")}) as desk:
        with pytest.raises(MeshError, match="neither") as raised:
            await desk.rewarded(harbor="t")
        assert raised.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT


async def test_an_artifact_that_is_too_large_is_missing(tmp_path: Path) -> None:
    test = "ls /logs/artifacts | wc -l >/logs/verifier/reward.txt\n"
    async with opened(tmp_path, {"t": apart("[]", test)}, artifacts_mb=1) as desk:
        large = "head -c 3000000 /dev/urandom >/logs/artifacts/a"
        assert (await desk.rewarded(large, harbor="t")).reward == 0.0
        assert (await desk.rewarded("touch /logs/artifacts/a", harbor="t")).reward == 1.0


def test_what_the_tests_sandbox_is_made_from(tmp_path: Path) -> None:
    dockerfile = {"tests/Dockerfile": "FROM a\n"}
    image = '[verifier.environment]\ndocker_image = "judge:1"\ncpus = 2\nnetwork_mode = "public"\n'
    cases = {
        "same": (apart("[]"), {}, ("made/box:1", False, "none")),
        "built": (apart("[]") | dockerfile, {}, ("", True, "none")),
        "mapped": (apart("[]") | dockerfile, {"t/tests": "x", "t": "y"}, ("x", False, "none")),
        "named": (harbor_task(NEW + image), {"judge:1": "z"}, ("z", False, "open")),
    }
    for name, (files, images, (of, is_built, network)) in cases.items():
        folder = write_tasks(tmp_path, {name: files}) / name
        box = read_harbor(folder).steps[0].tests.box
        assert box is not None
        spec = TaskSpecs(images, "task", {}).of_tests("t", box)
        assert (spec.image, spec.build is not None, spec.network) == (of, is_built, network), name
        assert not spec.lent


def test_only_harmless_members_are_carried_over() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, link in (
            ("f", tarfile.REGTYPE, ""), ("set", tarfile.REGTYPE, ""), ("d", tarfile.DIRTYPE, ""),
            ("d/in", tarfile.SYMTYPE, "../f"), ("d/out", tarfile.SYMTYPE, "../../f"),
            ("abs", tarfile.SYMTYPE, "/etc/passwd"), ("up", tarfile.SYMTYPE, "d/../../f"),
            ("hard", tarfile.LNKTYPE, "f"), ("pipe", tarfile.FIFOTYPE, ""),
            ("dev", tarfile.CHRTYPE, ""), ("a/../../b", tarfile.REGTYPE, ""),
            ("d/no.log", tarfile.REGTYPE, ""),
        ):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode, member.uid = kind, link, 0o4755, 7
            member.size = 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"abc") if member.size else None)
    with tarfile.open(fileobj=io.BytesIO(cleaned(buffer.getvalue(), ["*.log"]))) as made:
        members = {one.name: one for one in made}
        assert set(members) == {"f", "set", "d", "d/in", "hard"}
        assert {one.mode for one in members.values()} == {0o755}
        assert {one.uid for one in members.values()} == {0}
        content = made.extractfile("hard")
        assert content is not None
        assert content.read() == b"abc"


@pytest.mark.parametrize(
    ("path", "pattern", "excluded"),
    [
        ("a/b.log", "*.log", True),
        ("a/b.log", "a", True),
        ("a/b/c", "b", True),
        ("a/b/c", "a/*", True),
        ("a/b/c", "./a/b/", True),
        ("ab", "a", False),
        ("a/b.txt", "*.log", False),
    ],
)
def test_patterns_of_what_is_left_out(path: str, pattern: str, excluded: bool) -> None:
    assert is_excluded(path.split("/"), pattern) == excluded
