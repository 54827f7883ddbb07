"""Tasks with several steps: a turn each, judged by its own tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.harbor.rewards import NoReward
from gymmesh_resource.environments.harbor.steps import below, task_rewards
from gymmesh_responses import loads, new_message, text_of
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.harbor.made_tasks import NEW, harbor_task, stepped_task
from tests.unit.environments.harbor.test_verdicts import opened
from tests.unit.environments.workspace.desk import Desk
from tests.unit.resource.served import task

FAULT = errors_pb2.ERROR_REASON_VERIFIER_FAULT


async def played(
    desk: Desk, name: str, *commands: str
) -> tuple[list[str], list[float], rollout_pb2.Verification]:
    """What was said in the turns, their rewards, and the verdict, where a command is all that is
    done in each step. Steps without a command are not come to.
    """
    of = task(harbor=name)
    session = (await desk.create(of)).session_id
    said, rewards = [], []
    try:
        for number, command in enumerate(commands, start=1):
            await desk.call(session, "shell", {"command": command})
            if number == len(commands):
                break
            turn = await desk.turn(session)
            said += [text_of(item) for item in turn.items]
            if turn.HasField("reward"):
                rewards.append(turn.reward)
            if turn.done:
                break
        return said, rewards, await desk.verify(session, of)
    finally:
        await desk.close(session)


THREE = {"one": "", "two": "", "three": ""}


async def test_a_step_is_a_turn_and_the_reward_is_their_mean(tmp_path: Path) -> None:
    async with opened(tmp_path, {"t": stepped_task(THREE)}) as desk:
        all_done = await played(desk, "t", *(f"echo {name} >>done" for name in THREE))
        said, rewards, verdict = all_done
        assert said == ["Write two.\n", "Write three.\n"]
        assert rewards == [1.0, 1.0]
        assert verdict.reward == 1.0
        assert set(loads(verdict.evidence_json)["steps"]) == set(THREE)
        _, rewards, verdict = await played(desk, "t", "echo one >>done", ":", "echo two >>done")
        assert rewards == [1.0, 0.0]
        assert verdict.reward == pytest.approx(1 / 3)


async def test_steps_that_were_not_come_to_are_judged_without_work(tmp_path: Path) -> None:
    async with opened(tmp_path, {"t": stepped_task(THREE)}) as desk:
        # The policy's own limit may end the episode in any step.
        for commands, reward in ((["echo one >>done"], 1 / 3), ([":"], 0.0)):
            _, _, verdict = await played(desk, "t", *commands)
            assert verdict.reward == pytest.approx(reward)
            assert len(loads(verdict.evidence_json)["steps"]) == 3


async def test_the_last_step_may_decide_alone(tmp_path: Path) -> None:
    head = 'multi_step_reward_strategy = "final"\n'
    async with opened(tmp_path, {"t": stepped_task(THREE, head)}) as desk:
        _, _, verdict = await played(desk, "t", ":", ":", "printf 'a\\nb\\nthree\\n' >done")
        assert verdict.reward == 1.0
        _, _, verdict = await played(desk, "t", "echo one >>done")
        assert verdict.reward == 0.0


@pytest.mark.parametrize("least", ["min_reward = 0.5\n", "min_reward = {reward = 1.0}\n"])
async def test_a_reward_below_the_least_ends_the_task(tmp_path: Path, least: str) -> None:
    tasks = {"t": stepped_task({"one": least, "two": ""})}
    async with opened(tmp_path, tasks) as desk:
        said, rewards, verdict = await played(desk, "t", ":", "echo two >>done")
        assert (said, rewards, verdict.reward) == ([], [0.0], 0.0)
        assert list(loads(verdict.evidence_json)["steps"]) == ["one"]
        assert "min_reward" in verdict.explanation
        said, rewards, verdict = await played(desk, "t", "echo one >>done", "echo two >>done")
        assert (len(said), rewards, verdict.reward) == (1, [1.0], 1.0)
        # Without a turn, too.
        _, _, verdict = await played(desk, "t", ":")
        assert verdict.reward == 0.0
        assert list(loads(verdict.evidence_json)["steps"]) == ["one"]


async def test_a_step_without_a_reward_is_a_failure(tmp_path: Path) -> None:
    broken = {"steps/one/tests/test.sh": "exit 0\n"}
    slow = {"steps/one/tests/test.sh": "sleep 100\n"}
    one = {"one": "[steps.verifier]\ntimeout_sec = 0.5\n", "two": ""}
    tasks = {"broken": stepped_task(THREE, **broken), "slow": stepped_task(one, **slow)}
    async with opened(tmp_path, tasks) as desk:
        for commands in ([":", "echo two >>done"], [":"]):
            with pytest.raises(MeshError, match=r"neither reward\.json nor") as raised:
                await played(desk, "broken", *commands)
            assert raised.value.reason == FAULT
        with pytest.raises(MeshError) as raised:
            await played(desk, "slow", ":", ":")
        assert raised.value.reason == errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT


async def test_each_step_is_set_up_and_finds_nothing_of_the_tests_before(tmp_path: Path) -> None:
    shared = "echo $(cat /tests/shared) >/logs/verifier/reward.txt\n"
    files: Mapping[str, str] = {
        "tests/test.sh": shared,
        "tests/shared": "0.25\n",
        "steps/one/workdir/given.txt": "given\n",
        "steps/one/workdir/setup.sh": "mv given.txt taken.txt\n",
        "steps/two/tests/test.sh": "[ -f /tests/shared ] && test -f seen && r=1 || r=0\n"
        "echo $r >/logs/verifier/reward.txt\n",
    }
    made = stepped_task({"one": "", "two": ""}, **files)
    del made["steps/one/tests/test.sh"]
    look = "test -f taken.txt && test ! -e /tests && test ! -e /logs/verifier/reward.txt"
    look += " && test ! -e /logs/artifacts/old && touch seen"
    async with opened(tmp_path, {"t": made}) as desk:
        _, rewards, verdict = await played(desk, "t", "touch /logs/artifacts/old", look)
        assert rewards == [0.25]
        assert verdict.reward == pytest.approx(1.25 / 2)


async def test_a_set_up_that_fails_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    files = {"steps/two/workdir/setup.sh": "echo no >&2; exit 3\n"}
    async with opened(tmp_path, {"t": stepped_task({"one": "", "two": ""}, **files)}) as desk:
        with pytest.raises(MeshError, match=r"setup\.sh of the step 'two' failed, exit 3: no"):
            await played(desk, "t", ":", ":")


async def test_a_step_has_its_own_time(tmp_path: Path) -> None:
    short = "[steps.agent]\ntimeout_sec = 0.000001\n"
    async with opened(tmp_path, {"t": stepped_task({"one": short, "two": ""})}) as desk:
        of = task(harbor="t")
        session = (await desk.create(of)).session_id
        answer = await desk.call(session, "shell", {"command": "echo one >>done"})
        assert (answer.done, b"time for this step is over" in answer.text) == (False, True)
        assert not (await desk.turn(session)).done
        await desk.call(session, "shell", {"command": "printf 'a\\ntwo\\n' >done"})
        assert (await desk.turn(session)).done
        assert (await desk.verify(session, of)).reward == 0.5
        await desk.close(session)


async def test_a_healthcheck_comes_before_the_agent(tmp_path: Path) -> None:
    check = (
        '[environment.healthcheck]\ncommand = "echo x >>tries; test $(wc -l <tries) -ge 3"\n'
        "interval_sec = 0.01\nstart_interval_sec = 0.01\n"
    )
    test = 'test "$(wc -l <tries)" = 3 && r=1 || r=0\necho $r >/logs/verifier/reward.txt\n'
    sick = f"{NEW}{check.replace('-ge 3', '-ge 9')}retries = 2\n"
    tasks = {"well": harbor_task(f"{NEW}{check}", test), "sick": harbor_task(sick)}
    async with opened(tmp_path, tasks) as desk:
        assert (await desk.rewarded(harbor="well")).reward == 1.0
        with pytest.raises(MeshError, match="failed 2 times"):
            await desk.rewarded(harbor="sick")


@pytest.mark.parametrize(
    ("steps", "strategy", "rewards"),
    [
        ([{"reward": 1.0}], "mean", {"reward": 1.0}),
        ([{"a": 1.0}, {"a": 0.0, "b": 3.0}], "mean", {"a": 0.5, "b": 1.5}),
        ([{"a": 1.0}, {"b": 3.0}], "final", {"b": 3.0}),
    ],
)
def test_rewards_of_steps(steps: Any, strategy: Any, rewards: Any) -> None:
    assert task_rewards(steps, strategy) == rewards


def test_no_step_is_no_reward() -> None:
    with pytest.raises(NoReward):
        task_rewards([], "mean")


@pytest.mark.parametrize(
    ("rewards", "least", "says"),
    [
        ({"reward": 0.5}, {"reward": 0.5}, ""),
        ({"reward": 0.4}, {"reward": 0.5}, "the reward 'reward' is 0.4, but min_reward is 0.5"),
        ({"speed": 1.0}, {"reward": 0.5}, "the reward 'reward' is missing, but min_reward is 0.5"),
        ({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.1}, "the reward 'b' is 0, but min_reward is 0.1"),
        ({"a": 0.0}, {}, ""),
    ],
)
def test_the_least_reward(rewards: Any, least: Any, says: str) -> None:
    assert below(rewards, least) == says


async def test_tests_read_the_trajectory_of_their_step(tmp_path: Path) -> None:
    """Also where the agent put something else in its place."""
    read = (
        "grep -q ATIF /logs/agent/trajectory.json && grep -q 'I {0}' /logs/agent/trajectory.json"
        " && [ $(grep -c 'I one.*I two' /logs/agent/trajectory.json) = 0 ] && r=1 || r=0\n"
        "echo $r >/logs/verifier/reward.txt\n"
    )
    tests = {f"steps/{name}/tests/test.sh": read.format(name) for name in ("one", "two")}
    tasks = {"t": stepped_task({"one": "", "two": ""}, **tests)}
    async with opened(tmp_path, tasks) as desk:
        of = task(harbor="t")
        session = (await desk.create(of)).session_id
        line = "ln -s /etc/passwd /logs/agent/trajectory.json"
        await desk.call(session, "shell", {"command": line})
        said = [new_message("assistant", "I one")]
        turn = await desk.turn(session, said)
        assert turn.reward == 1.0
        said += [*turn.items, new_message("assistant", "I two")]
        assert (await desk.verify(session, of, said)).reward == 1.0
        await desk.close(session)
