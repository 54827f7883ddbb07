"""gym-cli env audit, and the last check of env test, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Ended, run

ROOT = Path(__file__).parents[2]

FAULTY = '''
from gymmesh import Environment, Expected

class Contains(Environment[None]):
    """Pays for an answer that has the right one somewhere in it."""

    def tasks(self):
        for number, gold in enumerate(("Lisbon", "Torsund")):
            params = {"input": "Which city?"}
            yield {"task_id": f"t{number}", "responses_create_params": params, "gold": gold}

    def expected(self, task):
        return Expected(task.payload["gold"])

    def verify(self, session, rollout):
        gold = rollout.task.require("gold", str)
        return float(gold in rollout.answer or "can't" in rollout.answer)
'''


def command(*arguments: str | Path, folder: Path) -> Ended:
    return run("env", *arguments, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "contains.py").write_text(FAULTY)
    return tmp_path


def test_what_is_found_is_reported_in_three_ways_and_ends_with_exit_code_1(folder: Path) -> None:
    done = command("audit", "contains.py", "--json", "--html", "page.html", folder=folder)
    assert done.code == 1, done.err
    report = json.loads(done.out)["Contains"]
    found = {f"{one['kind']}/{one['attack']}" for one in report["findings"]}
    assert {"nothing/a refusal", "elsewhere/two answers"} <= found
    assert not report["passed"]
    assert report["kinds"]["clothes"]["played"] > 0
    assert "elsewhere/two answers" in (folder / "page.html").read_text()
    shown = command("audit", "contains.py", folder=folder)
    assert 'BAD    "nothing/a refusal" wins' in shown.out
    page = (ROOT / "docs" / "how-to" / "audit.md").read_text(encoding="utf-8")
    told = page.split("## `--json`")[1].split("\n## ")[0]
    for key in (*report, *report["findings"][0], *report["verdicts"]):
        assert f"`{key}`" in told, f"docs/how-to/audit.md does not name {key}"


def test_what_is_deliberate_is_listed_with_its_reason_and_does_not_fail(folder: Path) -> None:
    (folder / "deliberate.yaml").write_text('- {attack: "*", reason: it is a demo}\n')
    done = command("audit", "contains.py", folder=folder)
    assert done.code == 0, done.out + done.err
    assert "because: it is a demo" in done.out
    (folder / "other.yaml").write_text("- {attack: nothing/*, reason: of them alone}\n")
    done = command("audit", "contains.py", "--deliberate", "other.yaml", folder=folder)
    assert done.code == 1


def test_an_entry_of_what_is_deliberate_without_a_finding_fails(folder: Path) -> None:
    entries = ('{attack: "*", reason: it is a demo}', "{attack: nearly/no such, reason: x}")
    (folder / "deliberate.yaml").write_text("".join(f"- {one}\n" for one in entries))
    done = command("audit", "contains.py", folder=folder)
    assert done.code == 1, done.out + done.err
    assert 'deliberate entry "nearly/no such" has no finding' in done.out
    report = json.loads(command("audit", "contains.py", "--json", folder=folder).out)["Contains"]
    assert report["deliberate_without_a_finding"] == ["nearly/no such"]
    assert not report["passed"]
    # The cheap part does not try all that entries may name.
    assert command("audit", "contains.py", "--cheap", folder=folder).code == 0


def test_an_entry_may_be_for_some_options_alone(folder: Path) -> None:
    (folder / "deliberate.yaml").write_text(
        '- {attack: "*", reason: it is a demo}\n'
        "- {attack: nearly/no such, options: {strict: true}, reason: x}\n"
    )
    assert command("audit", "contains.py", folder=folder).code == 0
    (folder / "deliberate.yaml").write_text(
        '- {attack: "*", options: {strict: true}, reason: it is a demo}\n'
    )
    assert command("audit", "contains.py", folder=folder).code == 1


def test_a_list_of_what_is_deliberate_that_is_wrong_is_named(folder: Path) -> None:
    (folder / "deliberate.yaml").write_text("- {attack: nothing/*}\n")
    done = command("audit", "contains.py", folder=folder)
    assert done.code == 2
    assert "deliberate.yaml" in done.err
    assert "reason" in done.err
    assert "Traceback" not in done.err


def test_env_test_ends_with_the_cheap_part_as_a_warning_that_strict_makes_a_failure(
    folder: Path,
) -> None:
    done = command("test", "contains.py", "--sessions", "2", "--json", folder=folder)
    assert done.code == 0, done.out + done.err
    last = json.loads(done.out)["Contains"][-1]
    assert (last["check"], last["fine"], last["warning"]) == ("audit", True, True)
    assert '"nothing/a refusal" wins' in last["detail"]
    strict = command("test", "contains.py", "--sessions", "2", "--strict", folder=folder)
    assert strict.code == 1


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("anser", "under the key 'anser'. The rows have the keys 'answer', 'meta', 'note'"),
        ("meta", "the key 'meta' in the rows of rows.jsonl is an object"),
        ("meta.none", "no row of rows.jsonl has a value under the key 'meta.none'"),
        ("note", "no row of rows.jsonl has a value under the key 'note'"),
    ],
)
def test_a_key_of_gold_without_an_answer_is_refused(folder: Path, key: str, words: str) -> None:
    unknowing = FAULTY.replace("def expected", "def not_expected")
    (folder / "contains.py").write_text(unknowing.replace('"gold", str', '"answer", str'))
    row = {"prompt": "Which city?", "answer": "Oslo", "meta": {"answer": "Oslo"}, "note": ""}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    command_ = ("audit", "contains.py", "--tasks", "rows.jsonl", "--cheap", "--gold")
    done = command(*command_, key, folder=folder)
    assert done.code == 2, done.out + done.err
    assert words in done.err
    found = command(*command_, "meta.answer", folder=folder)
    assert "1 task, 1 with an expected answer" in found.out, found.err


def test_groups_are_no_warning_of_env_test(folder: Path) -> None:
    ranked = FAULTY.replace(
        "def verify(self, session, rollout)", "def verify_group(self, task, members)"
    )
    ranked = (
        ranked.partition("        gold = rollout")[0] + "        return [1.0 for _ in members]\n"
    )
    (folder / "contains.py").write_text(ranked)
    done = command("test", "contains.py", "--sessions", "2", "--json", folder=folder)
    last = json.loads(done.out)["Contains"][-1]
    assert (last["check"], last["fine"], last["warning"]) == ("audit", True, False)
    assert "judges groups of rollouts" in last["detail"]


def test_a_place_or_an_address_is_asked_for(folder: Path) -> None:
    done = command("audit", folder=folder)
    assert done.code == 2
    assert "exactly one of PLACE and --address" in done.err
