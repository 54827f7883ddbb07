"""Task folders in real sandboxes: what solutions, nothing, and hostile work earn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Expected, Task
from gymmesh_resource.environments.harbor import HarborEnvironment
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.harbor.made_tasks import (
    NEW,
    RUNNABLE,
    TEXT,
    harbor_task,
    older_task,
    write_tasks,
)
from tests.unit.environments.workspace.desk import Desk, desk_of
from tests.unit.resource.served import task

OPTIONS: Mapping[str, Any] = {
    "images": {"*": "host"},
    "network": "agent",
    "variables": {"WORD": "hello"},
    "shell_timeout_s": 25.0,
}
FAULT = errors_pb2.ERROR_REASON_VERIFIER_FAULT


def made(folder: Path, **options: Any) -> HarborEnvironment:
    return HarborEnvironment(tasks=str(folder), **{**OPTIONS, **options})


def opened(
    place: Path, tasks: Mapping[str, Mapping[str, str]], **options: Any
) -> AbstractAsyncContextManager[Desk]:
    folder = write_tasks(place / "tasks", tasks)
    return desk_of(place, made(folder, **options), "harbor")


def commands_of(environment: HarborEnvironment, name: str) -> Sequence[str]:
    expected = environment.expected(Task(task(harbor=name)))
    assert isinstance(expected, Expected)
    calls = [item.function_call for item in expected.items()]
    assert {call.name for call in calls} == {"shell"}
    return [json.loads(call.arguments)["command"] for call in calls]


@pytest.mark.parametrize("name", RUNNABLE)
async def test_a_solution_earns_1_and_nothing_0(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, {name: RUNNABLE[name]}) as desk:
        environment = made(tmp_path / "tasks")
        solved = await desk.rewarded(*commands_of(environment, name), harbor=name)
        assert solved.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
        assert solved.reward == 1.0, solved
        assert (await desk.rewarded(harbor=name)).reward == 0.0


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("exit 0", "neither reward.json nor reward.txt"),
        (": >/logs/verifier/reward.txt", "reward.txt is empty"),
        ("echo nothing >/logs/verifier/reward.txt", "no number"),
        ("echo inf >/logs/verifier/reward.txt", "not finite"),
        ("echo '{' >/logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt", "not JSON"),
        (": >/logs/verifier/reward.json; echo 1 >/logs/verifier/reward.txt", "json is empty"),
        ('echo \'{"a": "b"}\' >/logs/verifier/reward.json', "not a finite number"),
        ('echo \'{"a": 1, "b": 1}\' >/logs/verifier/reward.json', "set the option 'reward'"),
        ("echo 1 >/logs/verifier/reward.json", "a JSON object whose values are numbers"),
        ("echo '{}' >/logs/verifier/reward.json", "reward.json is empty"),
        ("echo 1 >/tmp/r; ln -s /tmp/r /logs/verifier/reward.txt", "not a plain file"),
        ("mkdir /logs/verifier/reward.txt", "not a plain file"),
        ("rm -rf /logs/verifier", "neither"),
        ("kill -9 $$", "neither"),
    ],
)
async def test_a_reward_that_is_not_there_is_a_failure_and_not_0(
    tmp_path: Path, test: str, says: str
) -> None:
    async with opened(tmp_path, {"t": harbor_task(test=f"#!/bin/sh\n{test}\n")}) as desk:
        with pytest.raises(MeshError, match=says) as raised:
            await desk.rewarded(harbor="t")
        assert raised.value.reason == FAULT


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ({}, "does not support build. The task folder 't' has a Dockerfile"),
        ({"*": "gone"}, "The task folder 't' uses the image 'gone'"),
    ],
)
async def test_a_missing_image_is_named_with_the_fix(
    tmp_path: Path, images: Mapping[str, str], says: str
) -> None:
    toml = NEW.replace('docker_image = "made/box:1"\n', "")
    tasks = {"t": harbor_task(toml, **{"environment/Dockerfile": "FROM scratch\n"})}
    async with opened(tmp_path, tasks, images=images) as desk:
        with pytest.raises(MeshError, match=says) as raised:
            await desk.rewarded(harbor="t")
    assert "images: {t: IMAGE}" in raised.value.message


@pytest.mark.parametrize(
    ("test", "ends"),
    [
        ("", "the tests wrote no output."),
        ("echo oh; echo no", "the tests' output ends: oh no."),
        # Of four bytes each: the whole message has 2000 bytes.
        ("for i in $(seq 900); do printf 😀; done; echo the reason", "😀the reason."),
    ],
)
async def test_a_failure_has_the_end_of_the_tests_output(
    tmp_path: Path, test: str, ends: str
) -> None:
    async with opened(tmp_path, {"t": harbor_task(test=f"#!/bin/sh\n{test}\nexit 3\n")}) as desk:
        with pytest.raises(MeshError) as raised:
            await desk.rewarded(harbor="t")
        message = raised.value.message
        assert message.startswith(
            "The tests of the task folder 't' gave no reward: the tests wrote"
        )
        assert "the tests ended with exit code 3; " in message
        assert message.endswith(ends), message
        assert ".py" not in message


async def test_tests_that_take_too_long_are_a_failure(tmp_path: Path) -> None:
    tasks = {
        "new": harbor_task(f"{RUNNABLE['text']['task.toml']}[verifier]\ntimeout_sec = 0.5\n",
                           "#!/bin/sh\necho 1 >/logs/verifier/reward.txt; sleep 100\n"),
        "old": older_task("max_test_timeout_sec: 0.5\n", "sleep 100\n"),
    }  # fmt: skip
    async with opened(tmp_path, tasks) as desk:
        for name in tasks:
            with pytest.raises(MeshError) as raised:
                await desk.rewarded(harbor=name)
            assert raised.value.reason == errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT
            assert "their limit of 0.5 s" in raised.value.message
            assert raised.value.metadata["timeout_s"] == "0.5"


@pytest.mark.parametrize("run", ["pytest -rA", f"{'=' * 9} short test summary info {'=' * 9}"])
async def test_an_older_task_without_a_summary_is_a_failure(tmp_path: Path, run: str) -> None:
    async with opened(tmp_path, {"t": older_task(run=f"echo '{run}'; exit 1\n")}) as desk:
        with pytest.raises(MeshError, match="short test summary") as raised:
            await desk.rewarded(harbor="t")
        assert raised.value.reason == FAULT


async def test_numbers_of_a_reward_are_components(tmp_path: Path) -> None:
    test = '#!/bin/sh\necho \'{"speed": 2.5, "right": true}\' >/logs/verifier/reward.json\n'
    async with opened(tmp_path, {"t": harbor_task(test=test)}, reward="speed") as desk:
        verdict = await desk.rewarded(harbor="t")
        assert verdict.reward == 2.5
        assert {one.name: one.value for one in verdict.components} == {"speed": 2.5, "right": 1.0}


@pytest.mark.parametrize(
    "work",
    [
        "echo 1 >/logs/verifier/reward.txt; echo '{\"reward\": 1}' >/logs/verifier/reward.json",
        "rm -rf /logs/verifier; mkdir -p /tmp/v; echo 1 >/tmp/v/reward.txt;"
        " ln -s /tmp/v /logs/verifier",
        "ln -s /tmp/r /logs/verifier/reward.txt; ln -s /tmp/r /logs/verifier/reward.json",
        "mkdir -p /tests; printf 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh;"
        " chmod 555 /tests",
        "(while :; do echo 1 >/logs/verifier/reward.txt; echo '{\"reward\": 1}'"
        " >/logs/verifier/reward.json; done) >/dev/null 2>&1 &",
        "(while :; do for p in /proc/[0-9]*; do grep -q test.sh $p/cmdline"
        " && kill -9 ${p#/proc/}; done; done) >/dev/null 2>&1 &",
        "(while :; do echo 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh; done)"
        " >/dev/null 2>&1 &",
    ],
)
async def test_hostile_work_earns_what_the_tests_say(tmp_path: Path, work: str) -> None:
    tasks = {"root": harbor_task(), "user": harbor_task()}
    tasks["root"]["task.toml"] += '[agent]\nuser = "root"\n'
    async with opened(tmp_path, tasks) as desk:
        for name in tasks:
            verdict = await desk.rewarded(work, harbor=name)
            assert verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
            assert verdict.reward == 0.0
            solved = await desk.rewarded(f"{work}\necho hello >hello.txt", harbor=name)
            assert solved.reward == 1.0


async def test_tests_are_there_only_when_the_agent_has_ended(tmp_path: Path) -> None:
    test = f"{TEXT}test ! -e seen || echo 0 >/logs/verifier/reward.txt\n"
    waits = (
        "test -e /tests/test.sh && touch seen; echo hello >hello.txt; "
        "(while :; do test -e /tests/test.sh && touch seen; done) >/dev/null 2>&1 &"
    )
    async with opened(tmp_path, {"t": harbor_task(test=test)}) as desk:
        assert (await desk.rewarded(waits, harbor="t")).reward == 1.0


async def test_the_agents_time_ends(tmp_path: Path) -> None:
    toml = RUNNABLE["text"]["task.toml"] + "[agent]\ntimeout_sec = 0.000001\n"
    async with opened(tmp_path, {"t": harbor_task(toml)}) as desk:
        of = task(harbor="t")
        session = (await desk.create(of)).session_id
        answer = await desk.call(session, "shell", {"command": "echo hello >hello.txt"})
        assert answer.done
        assert (await desk.verify(session, of)).reward == 0.0
        await desk.close(session)


async def test_an_image_that_must_be_built_is_refused_by_a_service_that_builds_none(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, {"t": older_task()}, images={}) as desk:
        with pytest.raises(MeshError) as raised:
            await desk.rewarded(harbor="t")
        assert raised.value.reason == errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED
