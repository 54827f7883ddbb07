"""Judging rollouts again whose verifier reads the state of their session, which is gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_data.exports import HUB
from gymmesh_data.exports.formats import FORMATS
from tests.support.cli import Ended, gym, rows_of

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "first_environment"
ADD: Final = '{"type": "function_call", "name": "add", "call_id": "call_1", "arguments": '
ANSWERS: Final = (
    '{"match": "Put two apples and a tea into the basket.", "answers": [{"output": ['
    + ADD
    + '"{\\"item\\": \\"apple\\", \\"count\\": 2}"}, '
    + ADD.replace("call_1", "call_2")
    + '"{\\"item\\": \\"tea\\"}"}]}, {"text": "Done."}]}\n'
    '{"match": "*", "answers": [{"text": "We have no loaves."}]}\n'
)
# As README's Shop, with its basket in a database, which JSON cannot hold.
LEDGER: Final = '''
import os, sqlite3
from gymmesh import Environment, Rollout, Session, Task, tool

PRICES = {"apple": int(os.environ.get("APPLE", "2")), "bread": 4, "tea": 7}


class Ledger(Environment[sqlite3.Connection]):
    """A shop that keeps its baskets in a database."""

    version = os.environ.get("LEDGER_VERSION", "1")
    tools_replayable = True

    def create_state(self, task: Task, seed: int) -> sqlite3.Connection:
        basket = sqlite3.connect(":memory:", check_same_thread=False)
        basket.execute("create table basket (item text, count integer)")
        return basket

    def close_session(self, session: Session[sqlite3.Connection]) -> None:
        session.state.close()

    @tool
    def add(self, session: Session[sqlite3.Connection], item: str, count: int = 1) -> str:
        """Put some of an item into the basket."""
        session.state.execute("insert into basket values (?, ?)", (item, count))
        return f"{count} x {item}: {count * PRICES[item]}"

    def verify(self, session: Session[sqlite3.Connection], rollout: Rollout) -> float:
        found = session.state.execute("select item, sum(count) from basket group by item")
        right = dict(found.fetchall()) == rollout.task.payload["wanted"]
        return float(right) if self.version == "1" else float(not right)
'''
TALKING: Final = '''
from gymmesh import Turn
from ledger import Ledger


class Talking(Ledger):
    """It has the last word."""

    def next_turn(self, session, new):
        return Turn("We close.", done=True)
'''
RANKED: Final = '''
from gymmesh import Pending, Verdict
from shop import Shop


class Ranked(Shop):
    """The repeats of a task are judged together, by what is in their baskets."""

    def verify(self, session, rollout):
        return Pending("with its group")

    def verify_group(self, task, members):
        return [Verdict(float(one.state == task.payload["wanted"])) for one in members]
'''
STRICTER: Final = '''
from collections import Counter


def generous(session, rollout):
    """Half for a basket with anything in it."""
    wanted = Counter(rollout.task.payload["wanted"])
    return 1.0 if session.state == wanted else 0.5 * bool(session.state)


def said(answer):
    return float("loaves" in answer)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("shop.py", "tasks.jsonl"):
        shutil.copy(EXAMPLE / name, tmp_path / name)
    (tmp_path / "answers.jsonl").write_text(ANSWERS)
    (tmp_path / "ledger.py").write_text(LEDGER)
    (tmp_path / "stricter.py").write_text(STRICTER)
    (tmp_path / "ranked.py").write_text(RANKED)
    return tmp_path


async def collect(folder: Path, use: str, *more: str) -> list[dict[str, Any]]:
    policy = ("models.policy.backend=replay", "models.policy.path=answers.jsonl")
    values = (f"environments.shop.use={use}", *policy, *more)
    options = [part for value in values for part in ("--set", value)]
    files = ("--input", "tasks.jsonl", "--output", "rollouts.jsonl", "--env", "shop", "-q")
    done = await gym("collect", *files, *options, "--overwrite", cwd=folder)
    assert done.code == 0, done.err
    rows = rows_of(folder / "rollouts.jsonl")
    assert sorted(row["reward"] for row in rows) == [0.0, 1.0]
    return rows


async def reverify(folder: Path, use: str, *more: str, **env: str) -> Ended:
    given = ("--set", f"environments.shop.use={use}") if use else ()
    return await gym("reverify", "rollouts.jsonl", *given, *more, cwd=folder, env=env)


async def test_the_shop_is_judged_again_by_its_kept_basket(folder: Path) -> None:
    rows = await collect(folder, "shop.py:Shop")
    kept = {row["reward"]: row["final_state"] for row in rows}
    assert kept == {
        1.0: {"state": {"$counter": [["apple", 2], ["tea", 1]]}},
        0.0: {"state": {"$counter": []}},
    }
    done = await reverify(folder, "shop.py:Shop", "-o", "judged.jsonl", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["judged"], found["changed"], found["left_out"]) == (2, 0, {})
    judged = {row["rollout_id"]: row for row in rows_of(folder / "judged.jsonl")}
    for row in rows:  # and may be judged once more
        assert judged[row["rollout_id"]]["final_state"] == row["final_state"]


async def test_groups_are_judged_by_their_baskets_now_and_again(folder: Path) -> None:
    await collect(folder, "ranked.py:Ranked")
    done = await reverify(folder, "ranked.py:Ranked", "--dry-run", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["judged"], found["changed"], found["left_out"]) == (2, 0, {})


async def test_a_verifier_may_be_any_function_in_any_file(folder: Path) -> None:
    await collect(folder, "shop.py:Shop")
    by_state = await reverify(folder, "", "--verifier", "stricter.py:generous", "--dry-run")
    assert by_state.code == 0, by_state.err
    assert "shop              2     2        0" in by_state.out
    by_words = await reverify(folder, "", "--verifier", "stricter.py:said", "--dry-run")
    assert by_words.code == 0, by_words.err
    assert sorted(line for line in by_words.out.splitlines() if line.startswith("changed ")) == [
        "changed       shop-1 repeat 0: 1 -> 0  said 0",
        "changed       shop-2 repeat 0: 0 -> 1  said 1",
    ]
    report = await reverify(folder, "", "--verifier", "stricter.py:said", "--dry-run", "--json")
    changed = {one["task_id"]: one for one in json.loads(report.out)["rollouts"]}
    assert (changed["shop-2"]["before"], changed["shop-2"]["now"]) == (0.0, 1.0)


DESK: Final = '''
from dataclasses import dataclass, field

from gymmesh import Environment, Rollout, Session, tool


@dataclass
class Refund:
    order: str
    amount: int

    def is_large(self) -> bool:
        return self.amount > 100


@dataclass
class Refunds:
    made: list[Refund] = field(default_factory=list)


class Desk(Environment[Refunds]):
    """A support desk."""

    state = Refunds
    examples = [{"task_id": "a", "prompt": "Refund 40 for B20."}]

    @tool
    def refund(self, session: Session[Refunds], order: str, amount: int) -> str:
        """Refund an amount of an order."""
        session.state.made.append(Refund(order, amount))
        return "done"

    def verify(self, session: Session[Refunds], rollout: Rollout) -> float:
        return float(bool(session.state.made))
'''
JUDGES: Final = """
def strict(session, rollout):
    return float(session.state.made[0].order == "B20" and session.state.made[0].amount < 40)


def by_method(session, rollout):
    return float(session.state.made[0].is_large())
"""
CALL: Final = '{"type": "function_call", "name": "refund", "call_id": "c", "arguments": '
REFUND: Final = CALL + '"{\\"order\\": \\"B20\\", \\"amount\\": 40}"}'


@pytest.fixture
async def desk(tmp_path: Path) -> Path:
    """A run of an environment in a file, without a configuration."""
    (tmp_path / "desk.py").write_text(DESK)
    (tmp_path / "judges.py").write_text(JUDGES)
    (tmp_path / "one.py").write_text(JUDGES.partition("\n\n\n")[0])
    line = '{"match": "*", "answers": [{"output": [' + REFUND + ']}, {"text": "Done."}]}'
    (tmp_path / "answers.jsonl").write_text(line + "\n")
    policy = ("--set", "models.policy.path=answers.jsonl")
    done = await gym("collect", "desk.py:Desk", *policy, "-o", "rollouts.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    return tmp_path


@pytest.mark.parametrize("judge", ["judges.py:strict", "one.py"])
async def test_a_function_need_not_know_the_class_of_a_state(desk: Path, judge: str) -> None:
    done = await reverify(desk, "", "--verifier", judge, "--dry-run")
    assert done.code == 0, done.err
    assert "changed       a repeat 0: 1 -> 0" in done.out


async def test_a_judge_that_needs_the_class_of_a_state_says_which(desk: Path) -> None:
    by_method = await reverify(desk, "", "--verifier", "judges.py:by_method", "--dry-run")
    assert by_method.code == 1
    assert "'Refund' object has no attribute 'is_large' at judges.py:7" in by_method.err
    other = Path(desk / "other.py")
    other.write_text(DESK.replace("Refunds", "Money"))
    by_class = await reverify(desk, "", "--verifier", "other.py:Desk", "--dry-run")
    by_class.said("has no 'Refunds'; define or import Refunds in that module")


async def test_a_file_with_several_judges_names_them(desk: Path) -> None:
    done = await reverify(desk, "", "--verifier", "judges.py", "--dry-run")
    done.said("judges.py has 2 environments; choose one: judges.py:strict, judges.py:by_method")


async def test_the_class_of_a_run_without_a_configuration_is_named(desk: Path) -> None:
    done = await reverify(desk, "", "--dry-run")
    done.said("is not in the configuration", "pass --verifier desk.py:Desk")
    again = await reverify(desk, "", "--verifier", "desk.py:Desk", "--dry-run")
    assert again.code == 0, again.err
    (desk / "below").mkdir()
    below = await gym("reverify", "../rollouts.jsonl", "--dry-run", cwd=desk / "below")
    below.said(f"pass --verifier {desk / 'desk.py'}:Desk")


async def test_a_function_that_reads_a_state_that_was_not_kept_gives_no_reward(
    folder: Path,
) -> None:
    rows = await collect(folder, "shop.py:Shop", "environments.shop.keep_state=false")
    assert not any("final_state" in row for row in rows)
    done = await reverify(folder, "", "--verifier", "stricter.py:generous", "--dry-run")
    assert done.code == 1
    assert "no rollout was judged" in done.err
    assert "the session of this rollout has ended and the state was not kept" in done.err
    live = await reverify(folder, "shop.py:Shop", "--dry-run")
    assert live.code == 1
    assert (
        "skipped       rollouts whose session ended and whose final state was not kept" in live.out
    )


async def test_stored_calls_are_replayed_where_tools_may_be(folder: Path) -> None:
    rows = await collect(folder, "ledger.py:Ledger")
    why = "state is a Connection, which can't be written as JSON"
    assert [row["final_state"] for row in rows] == [{"omitted": why}] * 2
    done = await reverify(
        folder, "ledger.py:Ledger", "-o", "judged.jsonl", "--json", LEDGER_VERSION="2"
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["judged"], found["changed"], found["replayed"]) == (2, 2, 2)
    assert (found["replayed_differing"], found["differences"]) == (0, [])
    judged = {row["task_id"]: row for row in rows_of(folder / "judged.jsonl")}
    before = {row["task_id"]: row["reward"] for row in rows}
    for task_id, row in judged.items():
        assert row["reward"] == 1.0 - before[task_id]
    calls = {
        task_id: row["verification"]["reverified"]["replayed"] for task_id, row in judged.items()
    }
    assert calls["shop-1"] == {"calls": 2, "different": 0}
    assert calls["shop-2"] == {"calls": 0, "different": 0}


async def test_tools_that_answer_something_else_leave_a_rollout_out(folder: Path) -> None:
    await collect(folder, "ledger.py:Ledger")
    dearer = {"APPLE": "3"}
    left = await reverify(folder, "ledger.py:Ledger", "--dry-run", **dearer)
    assert left.code == 3, left.err
    assert "replayed      2 rollouts, 1 with differences" in left.out
    assert (
        "add (call_1) answered '2 x apple: 4' in the rollout, '2 x apple: 6' in the replay"
        in left.out
    )
    assert "skipped       rollouts whose replayed tool calls return different" in left.out
    judged = await reverify(
        folder, "ledger.py:Ledger", "--dry-run", "--json", "--on-difference", "judge", **dearer
    )
    found = json.loads(judged.out)
    assert (found["judged"], found["changed"], found["replayed_differing"]) == (2, 0, 1)
    assert judged.code == 0, judged.err


@pytest.mark.parametrize("kept", [True, False])
async def test_rollouts_with_turns_are_not_replayed(folder: Path, kept: bool) -> None:
    (folder / "talking.py").write_text(TALKING)
    keep = f"environments.shop.keep_state={str(kept).lower()}"
    await collect(folder, "talking.py:Talking", keep)
    done = await reverify(folder, "talking.py:Talking", "--dry-run", "--set", keep)
    assert done.code == 1
    if kept:  # what could be kept: a rollout may have a state, of another version of the class
        assert (
            "skipped       rollouts with turns of the environment (turns can't be replayed)"
            in done.out
        )
    else:
        done.said(
            "environment 'shop' takes turns and does not keep its final state. A replay of",
            "Set keep_state in the environment's class",
        )


async def test_rollouts_of_several_actors_are_not_replayed(folder: Path) -> None:
    rows = await collect(folder, "ledger.py:Ledger")
    details: dict[str, Any] = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2} | details
    helper = {"name": "helper", "models": ["policy"], "model_calls": 1, "trainable": False}
    plain = folder / "rollouts.jsonl"
    for name in ("rollouts.journal", "rollouts.run.json"):  # so that it may be edited
        (folder / name).unlink(missing_ok=True)
    plain.write_text(
        json.dumps({**rows[0], "actors": [helper | {"usage": usage}]})
        + "\n"
        + json.dumps(rows[1])
        + "\n"
    )
    done = await reverify(folder, "ledger.py:Ledger", "--dry-run")
    assert done.code == 3, done.err
    assert "replayed      1 rollout, 0 with differences" in done.out
    assert (
        "skipped       rollouts of several actors (the order of the actors' calls is unknown"
        in done.out
    )


async def test_kept_states_go_into_no_export_and_no_bundle(folder: Path) -> None:
    await collect(folder, "shop.py:Shop")
    rows = folder / "rollouts.jsonl"
    secret = "the gold of the state"
    changed = [json.loads(line) for line in rows.read_text().splitlines()]
    for row in changed:
        row["final_state"] = {"state": {"gold": secret}}
    plain = folder / "plain.jsonl"  # without a journal, so that it may be edited
    plain.write_text("".join(json.dumps(row) + "\n" for row in changed))
    assert secret in plain.read_text()
    for number, name in enumerate((*FORMATS, HUB)):
        suffix = "" if name == HUB else FORMATS[name].suffixes[0]
        asked = ("--format", name, "--output", f"export-{number}{suffix}")
        done = await gym("export", "plain.jsonl", *asked, cwd=folder)
        assert done.code in (0, 1), (name, done.err)
    bundled = await gym("view", "plain.jsonl", "--bundle", "site", cwd=folder)
    assert bundled.code == 0, bundled.err
    written = [one for one in folder.rglob("*") if one.is_file() and one.name != "plain.jsonl"]
    assert len([one for one in written if one.parent.name == "site" or "export" in str(one)]) > 15
    for one in written:
        for content in contents(one):
            assert secret.encode() not in content, one


def contents(file: Path) -> list[bytes]:
    """A file's bytes, or those of the files in an archive."""
    import gzip
    import zipfile

    import zstandard

    data = file.read_bytes()
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            return [archive.read(name) for name in archive.namelist()]
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return [zstandard.ZstdDecompressor().decompressobj().decompress(data)]
    return [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data]
