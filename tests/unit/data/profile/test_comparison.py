"""Comparisons of runs, paired by task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import UserError
from gymmesh_data.profile import ProfileOptions, compare, comparison_page
from tests.unit.data.profile.test_profile import runs
from tests.unit.data.rows import write_rows

FAST = ProfileOptions(resamples=500)


def test_runs_are_paired_by_task(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a.jsonl", runs({"t1": [0, 0], "t2": [1, 0], "only": [1]}))
    second = write_rows(tmp_path / "b.jsonl", runs({"t2": [0, 0], "t1": [1, 1], "more": [0]}))
    (found,) = compare([first, second], FAST)
    assert (found.only_before, found.only_after) == (1, 1)
    assert (found.mean_before, found.mean_after) == (0.25, 0.5)
    assert found.difference.value == pytest.approx(0.25)
    assert found.difference.interval == pytest.approx((-0.5, 1.0))
    assert (found.wins, found.losses) == (1, 1)
    assert [one.task_id for one in found.changes] == ["t1", "t2"]
    assert found.pass_at[2].value == pytest.approx(0.0)
    assert (found.p, found.exact) == (1.0, True)
    assert found.mcnemar is None


def test_tasks_of_one_id_with_other_prompts_are_said(tmp_path: Path) -> None:
    rows = runs({"t1": [0], "t2": [1]})
    first = write_rows(tmp_path / "a.jsonl", rows)
    rows[0]["responses_create_params"] = {"input": "another question"}
    second = write_rows(tmp_path / "b.jsonl", rows)
    (found,) = compare([first, second], FAST)
    assert found.other_prompts == found.to_dict(1)["other_prompts"] == 1
    said = CliRunner().invoke(cli, ["compare", str(first), str(second)]).output
    assert "check         the prompts of 1 of these tasks differ between the two runs" in said
    assert "the prompts of 1 of these tasks differ" in comparison_page([found], FAST, 1)
    (same,) = compare([first, first], FAST)
    assert same.other_prompts == 0
    assert "prompt" not in CliRunner().invoke(cli, ["compare", str(first), str(first)]).output


def test_verdicts_of_other_versions_are_said(tmp_path: Path) -> None:
    names = {}
    for version in ("1", "2"):
        rows = runs({"t1": [0], "t2": [1]}, environment="desk")
        for one in rows:
            one["verification"] = {"verifier": "desk", "version": version}
        names[version] = write_rows(tmp_path / f"{version}.jsonl", rows)
    (found,) = compare([names["1"], names["2"]], FAST)
    told = "desk: version 1 before; version 2 after"
    assert found.other_verdicts == found.to_dict(1)["other_verdicts"] == [told]
    said = CliRunner().invoke(cli, ["compare", str(names["1"]), str(names["2"])]).output
    assert f"check         verdicts of {told}. Rescore one run" in said
    assert told in comparison_page([found], FAST, 1)
    (same,) = compare([names["1"], names["1"]], FAST)
    assert same.other_verdicts == []


def test_a_run_is_no_different_from_itself_and_order_turns_the_sign(tmp_path: Path) -> None:
    some = {f"t{at}": [float(at % 3 == 0)] for at in range(12)}
    other = {task: [1.0] for task in some}
    first = write_rows(tmp_path / "a.jsonl", runs(some))
    second = write_rows(tmp_path / "b.jsonl", runs(other))
    same, changed = compare([first, first, second], FAST)
    assert (same.difference.value, same.p, same.corrected) == (0.0, 1.0, 1.0)
    assert changed.mcnemar is not None
    assert (changed.mcnemar.gained, changed.mcnemar.lost) == (8, 0)
    # With differences of 1 and 0 the sign-flip test is McNemar's.
    assert changed.p == pytest.approx(changed.mcnemar.p) == pytest.approx(2 / 256)
    assert changed.corrected == pytest.approx(4 / 256)
    (back,) = compare([second, first], FAST)
    assert back.difference.value == pytest.approx(-changed.difference.value)
    assert back.p == pytest.approx(changed.p)


def test_runs_without_a_common_task_are_one_clear_sentence(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a.jsonl", runs({"t1": [0]}))
    second = write_rows(tmp_path / "b.jsonl", runs({"t2": [0]}))
    with pytest.raises(
        UserError, match=r"no scored task in common \(.*: scored tasks: 1, such as 't1'"
    ):
        compare([first, second], FAST)
    unjudged = write_rows(tmp_path / "c.jsonl", runs({"t1": [None]}))
    with pytest.raises(UserError, match="no rollout has a reward"):
        compare([first, unjudged], FAST)


def test_the_page_shows_what_the_terminal_does_and_runs_nothing(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    before = {f"t{n}": [0.0, 0.5] for n in range(6)} | {hostile: [0.0, 0.0]}
    first = write_rows(tmp_path / "a.jsonl", runs(before))
    second = write_rows(tmp_path / "b.jsonl", runs({task: [1.0, 1.0] for task in before}))
    page = tmp_path / "new" / "compared.html"
    command = ["compare", str(first), str(second), str(first), "--html", str(page)]
    said = CliRunner().invoke(cli, [*command, "--resamples", "200"])
    assert said.exit_code == 0, said.output
    assert "page          " in said.output
    html = page.read_text()
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "default-src 'none'" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert html.count('<svg fill="currentColor" role="img" aria-label="') == 7
    assert "7 better, 0 worse, 0 unchanged" in html
    assert "all sign flips tried" in html
    assert "+1.000" in html
    assert CliRunner().invoke(cli, command).exit_code == 1  # it is there already
    over = CliRunner().invoke(cli, ["compare", str(first), str(second), "--html", str(first)])
    assert over.exit_code == 1
    assert first.read_text().startswith("{")


def test_a_page_of_runs_that_are_alike(tmp_path: Path) -> None:
    same = write_rows(tmp_path / "a.jsonl", runs({"t1": [0.5], "t2": [0.5]}))
    html = comparison_page(compare([same, same], FAST), FAST, most=10)
    assert html.count("<svg") == 3
    assert "Changed most" not in html


def test_the_command_says_the_same_with_the_same_seed(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a.jsonl", runs({f"t{n}": [n % 2] for n in range(40)}))
    second = write_rows(tmp_path / "b.jsonl", runs({f"t{n}": [int(n % 5 > 0)] for n in range(40)}))
    command = ["compare", str(first), str(second), "--resamples", "200", "--json"]
    said = [CliRunner().invoke(cli, [*command, "--seed", "3"]) for _ in range(2)]
    assert said[0].exit_code == 0, said[0].output
    assert said[0].stdout == said[1].stdout
    told = json.loads(said[0].stdout)["comparisons"][0]
    assert told["sign_flip"]["exact"] is True
    shown = CliRunner().invoke(cli, command[:-1])
    assert "by task       " in shown.output
    assert CliRunner().invoke(cli, ["compare", str(first)]).exit_code == 2


def test_a_difference_that_covers_some_of_the_tasks_says_how_many(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a.jsonl", runs({"t1": [0, 1], "t2": [1, 1], "t3": [0]}))
    second = write_rows(tmp_path / "b.jsonl", runs({"t1": [1, 1], "t2": [1, 0], "t3": [1, 1]}))
    said = CliRunner().invoke(cli, ["compare", str(first), str(second)])
    lines = {line.split(" ")[0]: line for line in said.output.splitlines()}
    assert lines["pass@2"].endswith(" (difference) over 2 of 3 tasks"), said.output
    assert lines["pass@1"].endswith(" (difference)"), said.output
