"""A profile at a tracker: which figures it gets, and as what run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gymmesh_data.profile import Profile, ProfileOptions, profile
from gymmesh_data.track import ProfileTracking, TrackerLink
from gymmesh_data.track.profiled import profile_measures, profile_run
from tests.unit.data.rows import row, text, write_rows
from tests.unit.data.track.test_link import RECORDS, REFUSES, command
from tests.unit.data.track.test_live import CONFIGURATION, output_in

NOW = datetime(2026, 11, 26, 17, 50, 3, tzinfo=UTC)


def answered(task: str, repeat: int, reward: float | None, tokens: int) -> dict[str, Any]:
    one = row(text(f"{task} {repeat}"), task=task, repeat=repeat, reward=reward)
    one["response"]["usage"] = {"output_tokens": tokens, "input_tokens": 3}
    one["verification"] = {"components": [{"name": "for mat", "value": 0.5}]}
    one["metadata"] = {"steps_taken": 2}
    return one


def failed(task: str, repeat: int) -> dict[str, Any]:
    failure = {
        "boundary": "MODEL",
        "status": {"reason": "MODEL_SERVER_ERROR", "message": "HTTP 500"},
    }
    one = row(task=task, repeat=repeat, failure=failure)
    del one["reward"]
    return one


def rollouts(folder: Path) -> Path:
    """Task a: two of four solved; task b: none of two; one without a reward, one that failed."""
    found = [answered("a", repeat, float(repeat % 2), 10 * repeat) for repeat in range(4)]
    found += [answered("b", 0, 0.0, 7), answered("b", 1, 0.25, 9), answered("b", 2, None, 1)]
    path = write_rows(folder / "rollouts.jsonl", found)
    write_rows(folder / "rollouts.failures.jsonl", [failed("b", 3)])
    return path


def made_of(*paths: Path, **options: Any) -> Profile:
    return profile(paths, ProfileOptions(**{"resamples": 50, **options}))


def test_the_figures_have_the_names_that_they_have_live(tmp_path: Path) -> None:
    found = profile_measures(made_of(rollouts(tmp_path)))
    wanted = {
        "rollouts/completed": 7,
        "rollouts/judged": 6,
        "rollouts/unjudged": 1,
        "rollouts/failed": 1,
        "reward/mean": 2.25 / 6,
        "pass_rate/mean": 2 / 6,
        "reward/median": (0.5 + 0.125) / 2,
        "pass_at/1": (0.5 + 0.0) / 2,
        "pass_at/2": (5 / 6 + 0.0) / 2,
        "pass_hat/2": (1 / 6 + 0.0) / 2,
        "pass_at/4": 1.0,
        "tasks/all": 2,
        "tasks/never_solved": 1,
        "length/output_tokens": 77 / 7,
        "length/output_tokens_max": 30,
        "length/model_calls": 2,
        "tokens/output": 77,
        "tokens/input": 21,
        "components/for_mat": 0.5,
        "failures/MODEL": 1,
        "causes/MODEL_MODEL_SERVER_ERROR": 1,
        "stop_reasons/MODEL_FINISHED": 7,
    }
    assert {name: found.get(name) for name in wanted} == pytest.approx(wanted)
    assert found["reward/mean_low"] <= found["reward/mean"] <= found["reward/mean_high"]
    assert all(isinstance(value, int | float) for value in found.values())


def test_what_is_not_known_is_no_measure(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rollouts.jsonl", [row(text("x"), reward=None)])
    found = profile_measures(made_of(path))
    assert found["rollouts/unjudged"] == 1
    assert not {"reward/mean", "reward/median", "pass_rate/mean", "pass_at/1"} & set(found)


async def test_it_is_a_run_in_the_group_of_the_collectors(tmp_path: Path) -> None:
    output = output_in(tmp_path)
    one = row(text("It is 1."))
    rollout = output.rollout_id("sum-1", 0)
    await output.reserve(rollout, 1)
    await output.completed(rollout, 1, json.dumps(one).encode())
    await output.close(completed=1, failed=0, interrupted=False, why="")
    kept = output.files.run.read_bytes()
    run = profile_run(made_of(output.files.rows, solved_at=0.5, seed=7), "mine", NOW)
    assert (run.project, run.group, run.id, run.kind) == ("mine", output.run_id, "", "profile")
    assert run.name == f"{output.run_id}-profile-20261126-175003"
    assert run.config["configuration"] == CONFIGURATION
    assert run.config["profile"]["inputs"] == [str(output.files.rows)]
    assert (run.config["profile"]["solved_at"], run.config["profile"]["seed"]) == (0.5, 7)
    assert output.files.run.read_bytes() == kept


def test_one_of_files_is_called_as_the_first(tmp_path: Path) -> None:
    path = rollouts(tmp_path)
    more = write_rows(tmp_path / "more.jsonl", [answered("c", 0, 1.0, 1)])
    run = profile_run(made_of(more, path), "mine", NOW)
    assert (run.group, run.name) == ("more", "more-profile-20261126-175003")
    assert list(run.config) == ["profile"]


async def sent(made_from: Path, script: str, *arguments: str, samples: int = 3) -> Any:
    """What is known of a profile that was sent: what began, warnings, and what was lost."""
    warnings, begun = list[str](), dict[str, Any]()
    link = TrackerLink(
        "mlflow", warnings.append, without="so it is", command=command(script, *arguments)
    )
    tracking = ProfileTracking(link, project="mine", samples=samples)
    made = profile([made_from], ProfileOptions(resamples=0), on_rollout=tracking.see)
    await tracking.send(made, begun.update)
    return begun, warnings, tracking.lost


async def test_it_is_sent_with_a_table_of_samples(tmp_path: Path) -> None:
    said = tmp_path / "said"
    begun, warnings, lost = await sent(rollouts(tmp_path), RECORDS, str(said))
    assert (begun["url"], warnings, lost) == ("http://tracker/t-1", [], "")
    begin, measures, table, end = map(json.loads, said.read_text().splitlines())
    assert (begin["do"], begin["project"], begin["kind"]) == ("begin", "mine", "profile")
    assert (measures["step"], measures["values"]["rollouts/completed"]) == (8, 7)
    assert len(table["rows"]) == 3
    assert (end["finished"], end["config"]) == (True, begin["config"])
    await sent(rollouts(tmp_path), RECORDS, str(said), samples=0)
    assert [json.loads(one)["do"] for one in said.read_text().splitlines()] == [
        "begin",
        "measures",
        "end",
    ]


async def test_a_tracker_that_refuses_it_is_said_once(tmp_path: Path) -> None:
    begun, warnings, lost = await sent(rollouts(tmp_path), REFUSES)
    assert (begun, warnings) == ({}, ["mlflow: no key: ***; so it is"])
    assert lost.endswith("messages were lost")
