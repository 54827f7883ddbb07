"""Tasks in training files: planted ones are found, however they are written; others are not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_cli.main import cli
from gymmesh_client import UserError
from gymmesh_data.contamination import ContaminationOptions, find_contamination
from gymmesh_data.contamination.ngrams import GramIndex, words_of
from tests.support.cli import run

CANARY = "0f3c9a52-7d1e-4b7a-9c55-2f1d8e6b4a10"
WORDS = [
    f"{a}{b}" for a in ("ba", "ke", "li", "mo", "nu", "ra") for b in ("dan", "fel", "gor", "sim")
]
HINT = "Think step by step, then give the final answer in a box and say nothing after it at all."


def sentence(random_: random.Random, count: int) -> str:
    return " ".join(random_.choices(WORDS, k=count))


def task_file(path: Path, tasks: dict[str, str], **more: Any) -> Path:
    rows = [
        {
            "task_id": name,
            "responses_create_params": {
                "input": [
                    {"role": "system", "content": HINT},
                    {"role": "user", "content": f"{text}\n{HINT}"},
                ]
            },
            **more,
        }
        for name, text in tasks.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def some_tasks(seed: int, count: int = 40) -> dict[str, str]:
    random_ = random.Random(seed)
    return {f"t{at}": sentence(random_, random_.randint(15, 60)) for at in range(count)}


def test_planted_tasks_are_found_and_no_other(tmp_path: Path) -> None:
    tasks = some_tasks(1)
    path = task_file(tmp_path / "tasks.jsonl", tasks, expected_answer="4")
    noise = random.Random(2)
    planted = {
        "t3": tasks["t3"],
        "t7": tasks["t7"].upper().replace(" ", ",  "),  # other case, punctuation, layout
        "t11": f"{sentence(noise, 200)} {tasks['t11']} {sentence(noise, 200)}",
    }
    rows: list[Any] = [{"text": sentence(noise, 300), "n": 3} for _ in range(50)]
    rows[10:10] = [{"messages": [{"content": text}]} for text in planted.values()]
    rows.append({"text": HINT})
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = find_contamination(path, [corpus])
    assert [one.task_id for one in made.found] == ["t3", "t7", "t11"]
    assert {one.part for one in made.found} == {"prompt"}
    assert [one.where for one in made.found] == [f"{corpus}:{line}" for line in (11, 12, 13)]
    assert all(one.share == 1.0 for one in made.found)
    assert made.shared > 0
    assert made.not_compared == 0


def test_none_is_accused_in_a_clean_set(tmp_path: Path) -> None:
    path = task_file(tmp_path / "tasks.jsonl", some_tasks(1))
    corpus = task_file(tmp_path / "corpus.jsonl", some_tasks(99, 200))
    made = find_contamination(path, [corpus])
    assert made.found == []
    assert made.texts > 200


def test_a_part_of_a_text_counts_by_its_share(tmp_path: Path) -> None:
    text = sentence(random.Random(5), 48)
    path = task_file(tmp_path / "tasks.jsonl", {"t": text})
    half = tmp_path / "half.txt"
    half.write_text(" ".join(text.split()[:30]))  # 18 of the n-grams of 13 words
    low, high = ContaminationOptions(share=0.2), ContaminationOptions(share=0.9)
    (found,) = find_contamination(path, [half], low).found
    assert 0.2 <= found.share < 0.5
    assert find_contamination(path, [half], high).found == []


def test_the_text_that_a_verifier_reads_counts_too(tmp_path: Path) -> None:
    solution = sentence(random.Random(6), 40)
    path = task_file(tmp_path / "tasks.jsonl", some_tasks(1, 1), solution=[{"steps": solution}])
    corpus = tmp_path / "corpus.md"
    corpus.write_text(f"# A page\n\nfirst\n\n{solution}\n")
    (found,) = find_contamination(path, [corpus]).found
    assert (found.part, found.where) == ("solution", f"{corpus}:5")


def test_canaries_of_the_file_and_of_the_command_are_looked_for(tmp_path: Path) -> None:
    path = task_file(tmp_path / "tasks.jsonl", {"t": f"Canary GUID {CANARY} What is it?"})
    keyed = task_file(tmp_path / "keyed.jsonl", {"t": "x"}, canary="gm-7f7f")
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"a": ["..."]}) + "\n" + json.dumps({"a": [f"({CANARY})"]}) + "\n")
    (found,) = find_contamination(path, [corpus]).canaries
    assert (found.canary, found.where) == (CANARY, f"{corpus}:2")
    made = find_contamination(keyed, [corpus], ContaminationOptions(canaries=("...",)))
    assert (made.looked_for, [one.canary for one in made.canaries]) == (2, ["..."])


def test_the_command_reports_and_writes_the_clean_tasks(tmp_path: Path) -> None:
    tasks = some_tasks(1, 4)
    path = task_file(tmp_path / "tasks.jsonl", tasks)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text(json.dumps({"text": tasks["t2"] + " " + HINT}) + "\n{broken\n")
    clean = tmp_path / "clean.jsonl"
    command = ["data", "contamination", str(path), "--against", str(corpus), "--shared-by", "3"]
    said = CliRunner().invoke(cli, [*command, "--write-clean", str(clean)])
    assert said.exit_code == 3, said.output
    assert f"found         t2: 100% of prompt at {corpus / 'a.jsonl'}:1" in said.output
    assert "not read      " in said.output
    assert [json.loads(line)["task_id"] for line in clean.read_text().splitlines()] == [
        "t0",
        "t1",
        "t3",
    ]
    none = tmp_path / "none.jsonl"
    none.write_text('{"text": "something else"}\n')
    command = ["data", "contamination", str(path), "--against", str(none), "--json"]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0
    assert json.loads(said.stdout)["tasks"] == 4
    own = CliRunner().invoke(cli, [*command, "--write-clean", str(none), "--overwrite"])
    assert own.exit_code == 1
    assert none.read_text() == '{"text": "something else"}\n'


def test_plain_texts_of_a_folder_are_compared_and_its_other_files_are_counted(
    tmp_path: Path,
) -> None:
    tasks = some_tasks(1, 4)
    path = task_file(tmp_path / "tasks.jsonl", tasks)
    corpus = tmp_path / "corpus"
    (corpus / "deep").mkdir(parents=True)
    (corpus / "a.jsonl").write_text('{"text": "something else"}\n')
    (corpus / "b.txt").write_text(tasks["t1"])
    (corpus / "deep" / "c.md").write_text(f"# A page\n\n{tasks['t3']}\n")
    for name in ("d.pdf", "e.pdf", "f.gz", "LICENSE"):
        (corpus / name).write_text(tasks["t2"])
    made = find_contamination(path, [corpus])
    assert [one.task_id for one in made.found] == ["t1", "t3"]
    assert made.unread == {".gz": 1, ".pdf": 2, "no ending": 1}
    command = ["data", "contamination", str(path), "--against", str(corpus)]
    said = CliRunner().invoke(cli, command)
    told = "not read      4 files of other types in the folder: 1 .gz, 2 .pdf, 1 no ending\n"
    assert told in said.output
    for one in (*corpus.glob("*.*sonl"), *corpus.rglob("*.txt"), *corpus.rglob("*.md")):
        one.unlink()
    with pytest.raises(UserError, match=r"\.txt, \.md"):
        find_contamination(path, [corpus])


def test_a_used_file_for_the_clean_tasks_is_refused_in_words_of_the_command(
    tmp_path: Path,
) -> None:
    path = task_file(tmp_path / "tasks.jsonl", some_tasks(1, 2))
    path.with_name("clean.jsonl").write_text("{}\n")
    used = run(
        "data",
        "contamination",
        "tasks.jsonl",
        "--against",
        "tasks.jsonl",
        "--write-clean",
        "clean.jsonl",
        cwd=tmp_path,
    )
    assert used.code == 1
    assert "clean.jsonl already exists" in used.err
    assert "--output" not in used.err


def test_a_wrong_row_of_the_task_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": 3}\n')
    with pytest.raises(UserError, match=r"tasks.jsonl:2: prompt"):
        find_contamination(path, [path])


@given(st.lists(st.sampled_from("abcd"), min_size=8, max_size=30), st.integers(8, 13))
def test_every_window_of_a_text_is_matched(words: list[str], size: int) -> None:
    index = GramIndex(size)
    index.add(0, "prompt", " ".join(words))
    index.build(1)
    (part,) = index.parts
    around = ["x", "y", *words, "z"]
    assert {gram for _, gram in index.matches(around)} == part.grams
    assert list(index.matches(["x"] * 40)) == []


def test_words_have_no_case_punctuation_or_compatibility_forms() -> None:
    assert words_of("Ein STRASSE, ﬁne – 3.5!") == ["ein", "strasse", "fine", "3", "5"]
