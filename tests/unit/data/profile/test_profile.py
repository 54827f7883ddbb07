"""Profiles of files of rows: what counts, what does not, and what is said of it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_cli.main import cli
from gymmesh_client import TaskDefaults, TaskFile, TaskReader, UserError
from gymmesh_data.profile import Fields, ProfileOptions, profile
from tests.unit.data.rows import call, result, row, text, write_rows

ROOT = Path(__file__).resolve().parents[4]
FAST = ProfileOptions(resamples=100)
Row = dict[str, Any]


def failure(task: str, repeat: int, boundary: str = "MODEL") -> Row:
    made = row(task=task, repeat=repeat)
    for key in ("reward", "stop_reason"):
        del made[key]
    status = {"code": 14, "message": "away", "reason": "MODEL_SERVER_ERROR", "metadata": {}}
    return made | {"failure": {"boundary": boundary, "status": status, "component": "policy"}}


def runs(rewards: Mapping[str, Sequence[float | None]], **more: Any) -> list[Row]:
    """Rows with these rewards of each task's repeats."""
    return [
        row(text(f"answer {repeat}"), task=task, repeat=repeat, reward=reward, **more)
        for task, some in rewards.items()
        for repeat, reward in enumerate(some)
    ]


def names(made: Any) -> set[str]:
    return {one.name for one in made.warnings}


def test_failed_and_unjudged_rollouts_are_never_zeros(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"t1": [1.0, None], "t2": [1.0, 0.5]}))
    write_rows(tmp_path / "a.failures.jsonl", [failure("t1", 2), failure("t3", 0, "VERIFIER")])
    made = profile([path], FAST)
    assert made.mean is not None
    assert made.mean.value == pytest.approx(2.5 / 3)
    assert made.rollouts() == {
        "completed": 4,
        "judged": 3,
        "unjudged": 1,
        "failed": 2,
        "repeated_rows": 0,
    }
    assert made.estimates["pass_at"][1].value == pytest.approx(0.75)
    assert made.estimates["pass_at"][2].tasks == 1
    assert made.totals.failures[("VERIFIER", "MODEL_SERVER_ERROR", "policy")] == 1
    assert {"verifier_errors", "unjudged"} <= names(made)


def test_what_counts_as_solved_is_chosen(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"t1": [0.5, 0.2], "t2": [0.9, 0.9]}))
    assert profile([path], FAST).estimates["pass_at"][1].value == 0
    half = ProfileOptions(solved_at=0.5, resamples=0)
    made = profile([path], half)
    assert made.estimates["pass_at"][1].value == pytest.approx(0.75)
    assert made.bands["always_solved"] == 1
    assert made.bands["to_half"] == 1
    assert made.estimates["pass_at"][1].interval is None


rewards = st.dictionaries(
    st.sampled_from(["t1", "t2", "t3", "t4"]),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=4),
    min_size=1,
)


@settings(max_examples=20, deadline=None)
@given(rewards, st.randoms())
def test_order_and_doubled_runs_make_no_difference(
    tmp_path_factory: pytest.TempPathFactory,
    some: dict[str, list[float | None]],
    shuffling: random.Random,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = runs(some)
    path = write_rows(folder / "a.jsonl", rows)
    shuffling.shuffle(rows)
    other = write_rows(folder / "b.jsonl", rows)

    def figures(*paths: Path) -> Row:
        told = profile(paths, FAST).to_dict()
        for key in ("inputs", "health", "rollouts"):
            del told[key]
        return told

    alone = figures(path)
    assert figures(other) == alone
    assert figures(path, path) == alone
    assert figures(path, other) == alone


def test_groups_by_environment_tag_difficulty_and_component(tmp_path: Path) -> None:
    parts = [{"name": "format", "value": 1.0, "weight": 0.2}, {"name": "answer", "value": 0.5}]
    rows = runs({"t1": [1.0, 1.0]}, tags={"source": "sums"}, difficulty=3)
    rows += runs({"t2": [0.0, 0.0]}, verification={"status": "VERIFIED", "components": parts})
    made = profile([write_rows(tmp_path / "a.jsonl", rows)], FAST)
    told = {(one.kind, one.name): one.mean.value for one in made.groups if one.mean}
    assert told == {("environment", "sums"): 0.5, ("tag source", "sums"): 1, ("difficulty", "3"): 1}
    assert made.totals.components["answer"].mean == 0.5
    assert "constant_component" in names(made)


def test_majority_votes_by_the_verifiers_answer(tmp_path: Path) -> None:
    said = [("7", 1.0), ("7", 1.0), ("8", 0.0)]
    rows = [
        row(
            text(answer),
            repeat=at,
            reward=reward,
            verification={"evidence": {"extracted_answer": answer}},
        )
        for at, (answer, reward) in enumerate(said)
    ]
    made = profile([write_rows(tmp_path / "a.jsonl", rows)], FAST)
    assert made.estimates["majority_at"][3].value == 1.0
    assert made.estimates["majority_at"][1].value == pytest.approx(2 / 3)


def test_a_verifier_that_found_no_answer_votes_for_none(tmp_path: Path) -> None:
    """The task's own key of that name is the expected answer."""
    said = [("7", 1.0), (None, 0.0), (None, 0.0), ("8", 0.0), ("8", 0.0)]
    rows = [
        row(
            text("x"),
            repeat=at,
            reward=reward,
            verification={"evidence": {"answer": answer}},
            answer="7",
        )
        for at, (answer, reward) in enumerate(said)
    ]
    options = ProfileOptions(resamples=100, fields=Fields(answer="answer"))
    made = profile([write_rows(tmp_path / "a.jsonl", rows)], options)
    assert made.estimates["majority_at"][5].value == 0.0


def test_tools_are_counted_with_calls_that_are_none(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": name} for name in ("a", "b", "c")]
    calls = [call("a", "{}", "1"), call("b", "[1]", "2"), call("c", "{", "3")]
    rows = [row(*calls, result("1", "x"), call("d", "{}", "4"), params={"tools": tools})]
    made = profile([write_rows(tmp_path / "a.jsonl", rows)], FAST)
    told = {name: (one.calls, one.invalid) for name, one in made.totals.tools.items()}
    assert told == {"a": (1, 0), "b": (1, 1), "c": (1, 1), "d": (1, 1)}
    assert "all_tools_at_once" in names(made)


def test_signs_of_reward_hacking_and_of_broken_runs(tmp_path: Path) -> None:
    rows = []
    for at in range(60):
        one = row(text("the same"), task=f"t{at % 6}", repeat=at, stop_reason="MAX_STEPS")
        one["reward"] = float(at >= 30)
        one["response"]["usage"] = {"output_tokens": 10 if at < 30 else 100}
        one["metadata"] = {"timings": {"started_at": 1000.0 + at}}
        rows.append(one)
    rows.append(row(text(" "), task="empty", reward=1.0))
    made = profile([write_rows(tmp_path / "a.jsonl", rows)], FAST)
    assert names(made) == {
        "same_rollouts",
        "truncation",
        "rewarded_empty_answers",
        "length_rewarded",
        "length_drift",
    }
    healthy = profile([write_rows(tmp_path / "b.jsonl", runs({"t": [0.0, 1.0]}))], FAST)
    assert names(healthy) == set()
    constant = profile([write_rows(tmp_path / "c.jsonl", runs({"t": [0.0, 0.0]}))], FAST)
    assert names(constant) == {"constant_reward"}


def test_tasks_of_two_files_with_one_id_are_warned_of(tmp_path: Path) -> None:
    asked = [row(text("5"), task="1", repeat=0), row(text("6"), task="1", repeat=1)]
    other = row(text("7"), task="1", repeat=2, prompt="What is 3 + 4?")
    elsewhere = other | {"environment": "words"}
    path = write_rows(tmp_path / "a.jsonl", [*asked, elsewhere])
    assert "mixed_tasks" not in names(profile([path], FAST))
    made = profile([write_rows(tmp_path / "b.jsonl", [*asked, other])], FAST)
    (warning,) = [one for one in made.warnings if one.name == "mixed_tasks"]
    assert warning.figures == {"tasks": 1, "of": 1}
    assert "tasks with different prompts: 1, first '1'" in warning.text


def test_values_that_cannot_be_counted_are_counted(tmp_path: Path) -> None:
    one = row(text("5"), metadata={"steps_taken": "two", "timings": []}, verification=[])
    one["response"]["usage"] = {"output_tokens": True}
    made = profile([write_rows(tmp_path / "a.jsonl", [one])], FAST)
    assert made.totals.unread == {"metadata.steps_taken": 1, "response.usage output_tokens": 1}
    huge = [row(text("5"), repeat=repeat, seed=10**400) for repeat in range(2)]
    for two in huge:
        two["response"]["usage"] = {"output_tokens": 10**400, "input_tokens": 10**200}
    made = profile([write_rows(tmp_path / "a.jsonl", huge)], FAST)
    assert made.totals.unread == {
        "response.usage input_tokens": 2,
        "response.usage output_tokens": 2,
    }
    json.dumps(made.to_dict(), allow_nan=False)


@pytest.mark.parametrize("huge", [1e300, 1e308, -1.7976931348623157e308])
def test_a_reward_that_is_too_large_is_counted_and_the_others_are_profiled(
    tmp_path: Path, huge: float
) -> None:
    rows = runs({"a": [0.0, 1.0], "b": [huge]})
    made = profile([write_rows(tmp_path / "a.jsonl", rows)], FAST)
    assert made.totals.unread == {"reward": 1}
    assert made.totals.unjudged == {"reward too large for statistics": 1}
    assert made.mean is not None
    assert made.mean.value == 0.5
    json.dumps(made.to_dict(), allow_nan=False)


def test_no_rows_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.jsonl: no rollouts yet"):
        profile([write_rows(tmp_path / "a.jsonl", [])], FAST)


def test_the_command_writes_a_page_in_which_nothing_of_the_rows_runs(tmp_path: Path) -> None:
    evil = '<script>alert(1)</script>"\x1b[2J'
    rows = runs({evil: [0.0, 1.0], "always": [1.0, 1.0]}, environment=evil, tags={evil: evil})
    rows.append(row(call(evil, "{}", "c"), task="t", environment=evil, stop_reason=evil))
    path = write_rows(tmp_path / "a.jsonl", rows)
    page, tasks = tmp_path / "p.html", tmp_path / "learnable.jsonl"
    command = ["profile", str(path), "--html", str(page), "--write-tasks", str(tasks)]
    said = CliRunner().invoke(cli, [*command, "--resamples", "50"])
    assert said.exit_code == 0, said.output
    assert "\x1b" not in said.output
    html = page.read_text()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "default-src 'none'" in html
    assert html.count("<svg") >= 4
    assert "http://" not in html.replace("http://www.w3.org", "")
    (kept,) = map(json.loads, tasks.read_text().splitlines())
    rates = {"pass_rate": 0.5, "rollouts": 2, "solved": 1, "mean_reward": 0.5}
    assert (kept["task_id"], kept["rates"]) == (evil, rates)
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 1
    assert "--overwrite" in again.output
    over = CliRunner().invoke(cli, ["profile", str(path), "--html", str(path), "--overwrite"])
    assert over.exit_code == 1
    assert path.read_text().count("\n") == len(rows)


def test_the_commands_json_has_the_documented_keys(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"t1": [1.0, 0.0]}))
    said = CliRunner().invoke(cli, ["profile", str(path), "--json", "--resamples", "50"])
    assert said.exit_code == 0
    page = (ROOT / "docs" / "how-to" / "profile.md").read_text()
    told = json.loads(said.stdout)
    assert told["solved_at"] == 1.0
    for key in told:
        assert f"`{key}`" in page, f"docs/how-to/profile.md does not name {key}"


def test_a_run_without_a_reward_has_a_page_and_exit_code_1(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"t1": [None]}))
    page = tmp_path / "new" / "p.html"
    said = CliRunner().invoke(cli, ["profile", str(path), "--html", str(page)])
    assert said.exit_code == 1
    assert "mean reward   –" in said.output
    assert "without a reward" in page.read_text()


def test_the_band_of_pass_rates_has_both_ends(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"a": [0.0, 0.0], "b": [0.0, 1.0], "c": [1.0]}))
    tasks = tmp_path / "tasks.jsonl"
    command = ["profile", str(path), "--resamples", "0", "--overwrite", "--write-tasks", str(tasks)]
    for band, names_kept in (([], ["b"]), (["--pass-rate", "0", "0.5"], ["a", "b"])):
        assert CliRunner().invoke(cli, [*command, *band]).exit_code == 0
        kept = [json.loads(line)["task_id"] for line in tasks.read_text().splitlines()]
        assert kept == names_kept


def test_the_tasks_that_are_written_can_be_collected(tmp_path: Path) -> None:
    rows = runs({"a": [0.0, 0.0], "b": [0.0, 1.0]}, expected_answer="7", rates="of the task")
    path, tasks = write_rows(tmp_path / "a.jsonl", rows), tmp_path / "tasks.jsonl"
    command = ["profile", str(path), "--resamples", "0", "--write-tasks", str(tasks)]
    said = CliRunner().invoke(cli, command)
    assert (
        f"tasks         1 in {tasks}\nnext          gym-cli collect --input {tasks}" in said.output
    )
    (task,) = TaskFile(TaskReader(TaskDefaults("any", "any")), tasks)
    assert (task.task_id, task.environment) == ("b", rows[0]["environment"])
    payload = json.loads(task.payload_json)
    assert payload["expected_answer"] == "7"
    assert payload["rates"]["pass_rate"] == 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pass-rate", "0", "1"], "for --write-tasks FILE; add this option"),
        (["--write-tasks", "t.jsonl", "--pass-rate", "0.9", "0.1"], "0.9 0.1: LOW is greater"),
    ],
)
def test_a_band_that_selects_nothing_is_refused(
    tmp_path: Path, options: list[str], words: str
) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"a": [1.0]}))
    said = CliRunner().invoke(cli, ["profile", str(path), *options])
    assert said.exit_code == 2, said.output
    assert words in " ".join(said.output.split())


def test_the_failures_of_a_real_run_are_read(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    error = {"reason": "MODEL_REQUEST_REFUSED", "message": "no"}
    answers.write_text(
        json.dumps(
            {"match": "I need three loaves of bread in the basket.", "answers": [{"error": error}]}
        )
        + "\n"
        + json.dumps({"match": "*", "answers": [{"text": "Done."}]})
        + "\n"
    )
    shop = ROOT / "examples" / "first_environment"
    path = tmp_path / "rollouts.jsonl"
    settings = [f"--set=models.policy.{it}" for it in ("backend=replay", f"path={answers}")]
    command = ["-m", "gymmesh_cli", "collect", "--config", str(shop / "shop.yaml"), "--quiet"]
    files = ["--input", str(shop / "tasks.jsonl"), "--output", str(path), "--max-attempts", "1"]
    ended = subprocess.run([sys.executable, *command, *files, *settings], check=False, cwd=ROOT)
    assert ended.returncode == 3
    made = profile([path], FAST)
    assert made.rollouts()["completed"] == made.rollouts()["failed"] == 1
    ((boundary, *_),) = made.totals.failures
    assert boundary == "MODEL"


def test_the_public_face_is_sorted_and_there() -> None:
    import gymmesh_data.profile as face

    assert face.__all__ == sorted(face.__all__, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(face, one) for one in face.__all__)


def test_the_seconds_of_concurrent_calls_are_named_as_sums(tmp_path: Path) -> None:
    rows = runs({"a": [1.0]})
    rows[0]["metadata"] = {"timings": {"duration_us": 5, "model_us": 3, "tools_us": 9}}
    path = write_rows(tmp_path / "a.jsonl", rows)
    said = CliRunner().invoke(cli, ["profile", str(path), "--resamples", "0"])
    assert "seconds: tools (sum of calls)" in said.output, said.output
    assert "seconds: model (sum of calls)" in said.output
