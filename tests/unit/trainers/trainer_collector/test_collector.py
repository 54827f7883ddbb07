"""Groups for a trainer: whole meshes in this process, with an engine that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_client import UserError
from gymmesh_client.dispatch.causes import Cause
from gymmesh_client.rollout import completed_of_row, failed_of_row
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_resource import Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import dumps
from gymmesh_rows import read_row
from gymmesh_trainers import (
    FailedRollout,
    Generation,
    Rollout,
    RolloutFailed,
    SamplingParams,
    ScriptedBackend,
    SyncCollector,
    TokenBackend,
    TrainerCollector,
    advantages,
    collect,
    collect_sync,
    run_one,
)
from tests.unit.data.rows import row as rollout_row
from tests.unit.data.rows import text
from tests.unit.trainers.char_model import EOS, CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums, rows

CALL = 'so: <tool_call>{"name":"add",  "arguments":{"left":1,"right":0}}</tool_call>'


def backend(engine: Any) -> TokenBackend:
    return TokenBackend(CharTokenizer(), engine)


def says(answer: str) -> TokenBackend:
    return backend(ScriptEngine(lambda prompt: answer))


async def test_a_scripted_model_runs_one_task() -> None:
    call = {"tool": "add", "arguments": {"left": 1, "right": 1}}
    rollout = await run_one(Sums(), rows(2)[1], [call, "2"])
    assert rollout.reward == 1.0
    assert rollout.tools_used == ["add"]
    assert rollout.text == "2"
    assert (await run_one(Sums(), rows(2)[1], ["3"])).reward == 0.0


async def test_a_script_that_is_too_short_fails_and_is_no_reward() -> None:
    call = {"tool": "add", "arguments": {"left": 1, "right": 1}}
    with pytest.raises(RolloutFailed, match="more answers than the script has"):
        await run_one(Sums(), rows(1)[0], [call])


async def test_groups_have_exact_tokens_though_the_history_is_rendered_otherwise() -> None:
    """The template writes the tool call in other characters than the model did."""
    engine = ScriptEngine(lambda prompt: "1" if "tool_call" in prompt else CALL)
    groups = [one async for one in collect(Sums, rows(2), repeats=3, model=backend(engine))]
    by_task = {group.task.id: group for group in groups}
    assert by_task["t0"].rewards == [1.0] * 3
    assert by_task["t1"].rewards == [0.0] * 3
    tokenizer = CharTokenizer()
    wrote = [[*tokenizer.encode(text), EOS] for text in (CALL, "1")]
    for rollout in by_task["t0"].rollouts:
        sample = rollout.samples[0]
        assert len(rollout.samples) == 1
        sampled = [one for one, on in zip(sample.tokens, sample.mask, strict=True) if on]
        assert sampled == wrote[0] + wrote[1]
        assert sample.tokens in [prompt + wrote[1] for prompt in engine.prompts]
        assert [value for value in sample.logprobs if value] == [-0.5] * len(sampled)
        assert sample.weights_versions == [-1] * len(sample.tokens)


async def test_advantages_are_relative_to_the_group() -> None:
    said = iter(["1", "2", "1", "7"])
    engine = ScriptEngine(lambda prompt: next(said))
    [group] = [one async for one in collect(Sums(), rows(1), repeats=4, model=backend(engine))]
    assert sorted(group.rewards) == [0.0, 0.0, 1.0, 1.0]
    assert not group.no_spread
    assert sum(group.advantages) == pytest.approx(0.0)
    assert [value > 0 for value in group.advantages] == [one == 1.0 for one in group.rewards]


async def test_single_rollouts_have_ids_of_their_own_in_every_process() -> None:
    """Services know requests by them: one of two alike would get what the other asked for."""
    task = rows(1)[0]
    async with (
        TrainerCollector(Sums, model=says("1")) as one,
        TrainerCollector(Sums, model=says("2")) as other,
    ):
        found = [await one.one(task), await one.one(task), await other.one(task)]
    assert len({rollout.id for rollout in found}) == 3
    texts = [rollout.text for rollout in found if not isinstance(rollout, FailedRollout)]
    assert texts == ["1", "1", "2"]


async def test_what_failed_stands_apart() -> None:
    async def breaks(prompt: list[int], params: SamplingParams) -> Generation:
        if "0 + 1" in CharTokenizer().decode(prompt):
            raise RuntimeError("no memory")
        return Generation([*CharTokenizer().encode("2"), EOS])

    async with TrainerCollector(
        Sums, model=backend(breaks), repeats=2, max_attempts=1
    ) as collector:
        groups = {one.task.id: one async for one in collector.step(rows(2))}
        assert collector.counts["failed"] == 2
    broken, good = groups["t0"], groups["t1"]
    assert broken.rollouts == []
    assert broken.advantages == []
    assert [one.boundary for one in broken.failed] == ["MODEL", "MODEL"]
    assert good.rewards == [1.0, 1.0]
    assert good.rollouts[0].logprobs == []


async def test_a_single_rollout_is_tried_again_after_the_pause_of_a_run() -> None:
    """The pause is the usual one; on a busy machine it can only be longer."""
    began: list[float] = []

    async def breaks_once(prompt: list[int], params: SamplingParams) -> Generation:
        began.append(asyncio.get_running_loop().time())
        if len(began) == 1:
            raise RuntimeError("no memory")
        return Generation([*CharTokenizer().encode("1"), EOS])

    async with TrainerCollector(Sums, model=backend(breaks_once)) as collector:
        found = await collector.one(rows(1)[0])
    assert isinstance(found, Rollout)
    assert found.reward == 1.0
    assert found.message.attempt == 2
    first, second = began
    assert second - first >= Cause().first_s


async def test_weights_versions_and_what_is_stale() -> None:
    sampled, all_began = [0], asyncio.Event()

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        sampled[0] += 1
        if sampled[0] == 4:
            all_began.set()
        return Generation([*CharTokenizer().encode("1"), EOS])

    async with TrainerCollector(
        Sums, model=backend(engine), repeats=1, max_staleness=0
    ) as collector:
        await collector.set_weights_version(3)
        [group] = [one async for one in collector.step(rows(1))]
        assert set(group.rollouts[0].weights_versions) == {-1, 3}
        assert group.rollouts[0].staleness == 0
        assert [one.rollouts async for one in collector.step(rows(3), groups=1)]
        await all_began.wait()
        await collector.set_weights_version(4)
        late = [one async for one in collector.step([])]
        assert len(late) == 2
        assert all(one.carried and len(one.stale) == 1 and not one.rollouts for one in late)
        assert collector.counts["stale"] == 2


async def test_weights_of_a_model_that_nobody_trains_make_nothing_stale(tmp_path: Path) -> None:
    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        version = 900 if "Is that so?" in CharTokenizer().decode(prompt) else 3
        return Generation([*CharTokenizer().encode("1"), EOS], weights=[(version, 0)])

    settings: dict[str, Any] = {"repeats": 2, "max_staleness": 0, "model": backend(engine)}
    settings["output"] = tmp_path / "rollouts.jsonl"
    for resume in (False, True):
        found = collect(_debate("Judged"), [{"prompt": "What?"}], resume=resume, **settings)
        [group] = [one async for one in found]
        assert [one.staleness for one in group.rollouts] == [0, 0]
        for rollout in group.rollouts:
            assert set(rollout.weights_versions) == {-1, 3}
            assert sum(rollout.mask) == 2  # of the policy's answer alone


@pytest.mark.parametrize("weights", [[(3, 1)], [(3, 0), (4, 2), (5, 1)], [("3", 0)], [3]], ids=str)
async def test_weights_that_leave_a_token_open_are_no_answer(weights: Any) -> None:
    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([*CharTokenizer().encode("12"), EOS], weights=weights)

    async with TrainerCollector(Sums, model=backend(engine), max_attempts=1) as collector:
        found = await collector.one(rows(1)[0])
    assert isinstance(found, FailedRollout)
    assert found.reason == "MODEL_ANSWER_INVALID"
    assert "weight versions" in found.why


async def test_rollouts_under_way_are_carried_into_the_next_step() -> None:
    gate = asyncio.Event()

    async def waits(prompt: list[int], params: SamplingParams) -> Generation:
        if "1 + 1" in CharTokenizer().decode(prompt):
            await gate.wait()
        return Generation([*CharTokenizer().encode("2"), EOS])

    async with TrainerCollector(Sums, model=backend(waits), repeats=2) as collector:
        first = [one.task.id async for one in collector.step(rows(2), groups=1)]
        gate.set()
        second = [one async for one in collector.step(rows(1))]
    assert first == ["t0"]
    assert sorted((one.task.id, one.carried) for one in second) == [("t0", False), ("t1", True)]


async def test_tasks_come_from_an_asynchronous_iterator_and_may_come_again() -> None:
    async def forever() -> AsyncIterator[dict[str, Any]]:
        for row in [*rows(2), rows(1)[0]]:
            yield row

    groups = [one async for one in collect(Sums, forever(), repeats=1, model=says("1"))]
    assert sorted(one.task.id for one in groups) == ["t0", "t0-2", "t1"]


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        (
            [{"answer": "1"}],
            r"tasks\[0\]: prompt: is missing. Add this key, or responses_create_params",
        ),
        ([rows(1)[0], 7], r"tasks\[1\]: must be a row"),
    ],
)
async def test_a_task_that_cannot_be_used_is_named(tasks: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        async for _ in collect(Sums, tasks, repeats=1, model=says("1")):
            pass


async def test_a_place_or_model_that_cannot_be_meant_is_said() -> None:
    for place, model, problem in (
        (7, None, "expected an environment"),
        ("127.0.0.1:9", says("1"), "a remote mesh has its own models"),
        (Sums, "gpt", "is not a URL"),
    ):
        with pytest.raises(UserError, match=problem):
            async with TrainerCollector(place, model=model):  # type: ignore[arg-type]  # wrong
                pass


def test_a_trainer_that_is_not_asynchronous() -> None:
    groups = list(collect_sync(Sums, rows(2), repeats=2, model=says("1")))
    assert sorted(one.task.id for one in groups) == ["t0", "t1"]
    with SyncCollector(Sums, repeats=2, model=says("1")) as collector:
        collector.set_weights_version(1)
        for number in range(2):
            assert len(list(collector.step(rows(number + 1)))) == number + 1
        row = rows(1)[0]
        assert [one.id for one in collector.many([row, row])]
        assert collector.weights_version == 1


async def test_files_are_written_and_gone_on_with(tmp_path: Path) -> None:
    output = tmp_path / "rollouts.jsonl"
    engine = ScriptEngine(lambda prompt: "1")
    settings: dict[str, Any] = {"repeats": 2, "output": output, "model": backend(engine)}
    before = [one async for one in collect(Sums, rows(2), **settings)]
    assert len(output.read_text().splitlines()) == 4
    asked = len(engine.prompts)
    again = [one async for one in collect(Sums, rows(3), resume=True, **settings)]
    assert len(engine.prompts) == asked + 2
    with pytest.raises(UserError, match="config"):
        await anext(aiter(collect(Sums, rows(3), resume=True, params={"top_p": 0.5}, **settings)))
    known = {one.task.id: one for one in again}
    assert sorted(known) == ["t0", "t1", "t2"]
    for group in before:
        stored = known[group.task.id]
        assert stored.rewards == group.rewards
        assert [one.tokens for one in stored.rollouts] == [one.tokens for one in group.rollouts]
        assert [one.mask for one in stored.rollouts] == [one.mask for one in group.rollouts]


async def test_staleness_of_what_is_gone_on_with_is_counted_from_the_newest(tmp_path: Path) -> None:
    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        version = 1 if "What is 0" in CharTokenizer().decode(prompt) else 5
        return Generation([*CharTokenizer().encode("1"), EOS], weights=[(version, 0)])

    settings: dict[str, Any] = {"repeats": 1, "output": tmp_path / "rollouts.jsonl"}
    settings |= {"model": backend(engine), "concurrency": 1}
    assert len([one async for one in collect(Sums, rows(2), **settings)]) == 2
    again = collect(Sums, rows(2), resume=True, max_staleness=3, **settings)
    found = {one.task.id: one async for one in again}
    assert [one.staleness for one in found["t0"].stale] == [4]
    assert [one.staleness for one in found["t1"].rollouts] == [0]


async def test_a_task_of_the_same_id_is_not_gone_on_with_as_another_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"repeats": 2, "output": tmp_path / "rollouts.jsonl"}
    settings["model"] = backend(ScriptEngine(lambda prompt: "1"))
    task = rows(1)[0] | {"reward": "the task's", "metadata": {"of": "it"}, "n": 1}
    assert [one.rewards async for one in collect(Sums, [task], **settings)] == [[1.0, 1.0]]
    settings["resume"] = True
    assert [one.rewards async for one in collect(Sums, [task], **settings)] == [[1.0, 1.0]]
    for change in ({"prompt": "What is 5 + 5?"}, {"answer": "10"}, {"reward": 1}, {"n": 1.0}):
        key = "input" if "prompt" in change else next(iter(change))
        with pytest.raises(UserError, match=f"task t0: the files .* but a different '{key}'"):
            await anext(aiter(collect(Sums, [task | change], **settings)))


async def test_what_is_gone_on_with_says_what_it_said_before(tmp_path: Path) -> None:
    """Answers, tools and the causes of failures, with token ids and without."""
    call = {"tool": "add", "arguments": {"left": 1, "right": 0}}
    script = ScriptedBackend([call, "1"])
    for name, model in (("tokens", backend(ScriptEngine(_with_tool))), ("text", script)):
        output = tmp_path / f"{name}.jsonl"
        settings: dict[str, Any] = {"repeats": 2, "output": output, "model": model}
        found = [rows(1)[0], rows(1)[0] | {"task_id": "bad", "answer": 7}]
        before = {one.task.id: one async for one in collect(Sums, found, **settings)}
        again = {one.task.id: one async for one in collect(Sums, found, resume=True, **settings)}
        for rollout, stored in zip(before["t0"].rollouts, again["t0"].rollouts, strict=True):
            assert stored.text == rollout.text == "1"
            assert stored.tools_used == rollout.tools_used == ["add"]
            assert stored.samples == rollout.samples
            assert bool(stored.samples) == (name == "tokens")
        for failed, kept in zip(before["bad"].failed, again["bad"].failed, strict=True):
            assert failed.why
            assert (kept.boundary, kept.reason, kept.why) == (
                failed.boundary,
                failed.reason,
                failed.why,
            )
            assert kept.message.failed.failure == failed.message.failed.failure


def _debate(agent: str) -> MeshConfig:
    here = "tests.unit.trainers.environments"
    return MeshConfig(
        environments={"debated": EnvironmentConfig(use=f"{here}:Debated")},
        agents={"debate": AgentConfig(use=f"{here}:{agent}")},
        defaults=Defaults(environment="debated", agent="debate"),
    )


def _with_tool(prompt: str) -> str:
    return "1" if "tool_call" in prompt else CALL


def test_a_stored_answer_is_the_model_s_alone() -> None:
    """What the environment said between answers is none, and what has no prompt is not trained."""
    ids = {"generation_token_ids": [7, 8], "generation_log_probs": [-0.5, -1.0]}
    found = rollout_row(
        text("first", prompt_token_ids=[1], **ids),
        {"role": "user", "content": "And then?"},
        text("second", **ids),
    )
    stored = Rollout(completed_of_row(read_row(dumps(found))), Task.of(rows(1)[0]))
    assert stored.text == "second"
    assert [one.tokens for one in stored.samples] == [[1, 7, 8]]


@pytest.mark.parametrize("reason", ["", "OF_A_LATER_CONTRACT"])
def test_a_failure_of_no_known_reason_is_one(reason: str) -> None:
    status = {"code": 13, "message": "broke", "reason": reason, "metadata": {"a": "b"}}
    cause = {"boundary": "MODEL", "status": status, "retry_safe": True}
    kept = FailedRollout(
        failed_of_row(read_row(dumps(rollout_row(reward=None, failure=cause)))), Task.of(rows(1)[0])
    )
    assert (kept.boundary, kept.reason, kept.why) == ("MODEL", "INTERNAL_FAULT", "broke")
    assert not kept.message.HasField("completed")


async def test_a_task_may_be_called_like_the_copy_of_another_one() -> None:
    found = [rows(1)[0] | {"task_id": name} for name in ("a", "a", "a-2", "a", "a-2")]
    groups = [one async for one in collect(Sums, found, repeats=1, model=says("1"))]
    assert sorted(one.task.id for one in groups) == ["a", "a-2", "a-2-2", "a-2-3", "a-3"]
    assert all(one.rewards == [1.0] for one in groups)


async def test_blocks_of_an_asynchronous_iterator_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_trainers.trainer_collector.reading._BLOCK", 2)

    async def coming() -> AsyncIterator[dict[str, Any]]:
        for row in rows(5):
            yield row

    output = tmp_path / "rollouts.jsonl"
    model = backend(ScriptEngine(lambda prompt: "1"))
    found = [one async for one in collect(Sums, coming(), repeats=1, output=output, model=model)]
    assert sorted(one.task.id for one in found) == ["t0", "t1", "t2", "t3", "t4"]
    names = ["rollouts.jsonl", "rollouts.part-2.jsonl", "rollouts.part-3.jsonl"]
    assert [len((tmp_path / name).read_text().splitlines()) for name in names] == [2, 2, 1]


async def test_actors_have_rewards_of_their_own_in_their_group(tmp_path: Path) -> None:
    """Four rollouts: in one the critic is not asked, and it is judged among the other three."""
    answers = iter(["no", "sure", "maybe", "no"])
    engine = ScriptEngine(lambda prompt: "yes" if "Is that so?" in prompt else next(answers))
    config = _debate("Debate")
    output = tmp_path / "rollouts.jsonl"
    settings: dict[str, Any] = {"repeats": 4, "concurrency": 1, "output": output}
    settings["model"] = backend(engine)
    [group] = [one async for one in collect(config, [{"prompt": "What?"}], **settings)]
    assert group.actors == ["", "critic"]
    assert group.rewards_of("") == group.rewards == [0.0, 1.0, 0.0, 0.0]
    assert group.rewards_of("critic") == [0.25, None, 0.75, 0.25]
    low, none, high, again = group.advantages_of("critic")
    assert none is None
    assert low == again
    assert [low, high, again] == pytest.approx(advantages([0.25, 0.75, 0.25]))
    assert group.advantages_of("") == pytest.approx(group.advantages)
    assert [one.text for one in group.rollouts] == ["no", "sure", "maybe", "no"]
    asked = group.rollouts[0]
    assert asked.reward_of("critic") == 0.25
    assert asked.reward_of("planner") == asked.reward  # no component of that name
    assert asked.by_actor["critic"][0].tokens != asked.by_actor[""][0].tokens
    resumed = collect(config, [{"prompt": "What?"}], resume=True, **settings)
    [stored] = [one async for one in resumed]
    assert [one.by_actor for one in stored.rollouts] == [one.by_actor for one in group.rollouts]
    assert [one.text for one in stored.rollouts] == [one.text for one in group.rollouts]
    assert stored.advantages_of("critic") == group.advantages_of("critic")


class Tokenless(ScriptedBackend):
    """An endpoint that gives texts alone."""

    is_recorded = False


@pytest.mark.parametrize("single", [False, True])
async def test_a_model_without_tokens_is_named_once(
    single: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rollouts have rewards, and nothing to train."""
    model = Tokenless(["1"])
    async with TrainerCollector(Sums(), model=model, repeats=2) as collector:
        if single:
            assert len(await collector.many(rows(2))) == 2
        else:
            groups = [group async for group in collector.step(rows(2))]
            assert [len(group.rollouts) for group in groups] == [2, 2]
    [message] = caplog.messages
    assert "model 'policy' returned no token ids, so its answers can't be trained" in message


async def test_an_evaluation_needs_no_tokens(caplog: pytest.LogCaptureFixture) -> None:
    async with TrainerCollector(Sums(), model=Tokenless(["1"])) as collector:
        assert (await collector.evaluate(rows(2))).mean_reward == 0.5
    assert not caplog.messages


async def test_a_script_for_tests_needs_no_tokens(caplog: pytest.LogCaptureFixture) -> None:
    async with TrainerCollector(Sums(), model=ScriptedBackend(["1"])) as collector:
        assert len([group async for group in collector.step(rows(2))]) == 2
    assert not caplog.messages
