"""An image that a tool returned, from the tool's one line to rows, exports and later verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh_data.rollout import StoredRollout, rollout_of_line
from gymmesh_view.rollout.detail import detail_of
from tests.support.cli import run
from tests.support.images import image_part, png, png_url

ENVIRONMENT = '''
from pathlib import Path

from gymmesh import Environment, Image, Rollout, Session, tool


class Look(Environment[None]):
    """Looks at pictures."""

    @tool
    def look(self, name: str) -> Image:
        """Look at a picture."""
        return Image(Path(__file__).parent / f"{name}.png", f"This is {name}:")

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        seen = [
            part.input_image.image_url
            for item in rollout.items
            for part in item.function_call_output.parts.parts
            if part.HasField("input_image")
        ]
        whole = all(url.startswith("data:image/png;base64,iVBORw0KGgo") for url in seen)
        return float(whole and len(seen) == 3)
'''
CONFIG = """
environments:
  look: {use: "FOLDER/look.py:Look"}
models:
  policy: {backend: replay, path: FOLDER/answers.jsonl}
defaults: {environment: look}
"""
QUESTION = "What is it?"
CALLS = [
    {"type": "function_call", "name": "look", "call_id": f"f{n}",
     "arguments": json.dumps({"name": name})}
    for n, name in enumerate(("cat", "dog", "cat"))
]  # fmt: skip
ANSWERS = [{"output": [one]} for one in CALLS] + [{"text": "A cat."}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mesh, and a task whose prompt has a picture, too: the one that a tool then shows."""
    made = tmp_path_factory.mktemp("images")
    (made / "look.py").write_text(ENVIRONMENT)
    (made / "mesh.yaml").write_text(CONFIG.replace("FOLDER", str(made)))
    for name, seed in (("cat", 1), ("dog", 2)):
        (made / f"{name}.png").write_bytes(png(seed))
    content = [
        {"type": "input_text", "text": QUESTION},
        {"type": "input_image", "image_url": "cat.png"},
    ]
    task = {"task_id": "t-1", "prompt": [{"role": "user", "content": content}]}
    (made / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (made / "answers.jsonl").write_text(json.dumps({"match": "*", "answers": ANSWERS}) + "\n")
    return made


def collect(folder: Path, output: str, *more: str) -> Any:
    return run(
        *("collect", "--config", str(folder / "mesh.yaml"), "--quiet"),
        *("--input", str(folder / "tasks.jsonl"), "--output", str(folder / output), *more),
    )


@pytest.fixture(scope="module")
def rows(folder: Path) -> Path:
    done = collect(folder, "rollouts.jsonl", "--num-repeats", "2")
    assert done.code == 0, done.err
    return folder / "rollouts.jsonl"


@pytest.fixture
def stored(rows: Path) -> StoredRollout:
    return rollout_of_line(rows.read_bytes().splitlines()[0], "rollouts.jsonl:1")


def test_a_row_holds_each_image_once(rows: Path) -> None:
    for line in rows.read_bytes().splitlines():
        row = json.loads(line)
        assert row["reward"] == 1.0  # the verifier saw all three
        for seed in (1, 2):
            assert line.count(png_url(seed).partition(",")[2].encode()) == 1
        assert len(row["media"]) == 2
        assert line.count(b"gymmesh-media:sha256:") == 4
        assert "first_items" not in row


def test_who_reads_the_row_gets_the_images(stored: StoredRollout) -> None:
    assert stored.first_items[0]["content"][1] == image_part(1)
    outputs = [one for one in stored.output if one["type"] == "function_call_output"]
    assert [one["output"][1] for one in outputs] == [image_part(1), image_part(2), image_part(1)]
    detail: Any = detail_of(stored)
    assert detail["images"] == [png_url(1), png_url(2)]


@pytest.mark.parametrize("name", ["messages", "sft", "inspect", "nemo-gym", "atif"])
def test_exports_carry_them(rows: Path, folder: Path, name: str) -> None:
    suffix = "eval" if name == "inspect" else "jsonl"
    written = folder / f"{name}.{suffix}"
    done = run("export", str(rows), "--format", name, "--output", str(written))
    assert done.code == 0, done.err
    if name == "inspect":
        return  # a ZIP archive, whose parts are compressed
    text = written.read_text()
    for seed, times in ((1, 3), (2, 1)):
        found = text.count(png_url(seed).partition(",")[2])
        assert found >= times, name


def test_a_table_without_a_column_for_images_counts_them(rows: Path, folder: Path) -> None:
    pytest.importorskip("pyarrow")
    written = folder / "demonstrations.parquet"
    done = run("export", str(rows), "--format", "verl-sft", "--output", str(written))
    assert "image" in done.out + done.err


def test_it_is_judged_again_with_its_images(rows: Path, folder: Path) -> None:
    written = folder / "again.jsonl"
    done = run(
        *("reverify", str(rows), "--config", str(folder / "mesh.yaml")),
        *("--output", str(written)),
    )
    assert done.code == 0, done.err
    for line in written.read_text().splitlines():
        row = json.loads(line)
        assert row["reward"] == 1.0
        assert len(row["media"]) == 2


def test_its_task_can_be_run_again(rows: Path, folder: Path) -> None:
    """A row is a recording: the question with its image is found again."""
    config = CONFIG.replace("answers.jsonl", "rollouts.jsonl").replace("FOLDER", str(folder))
    (folder / "replayed.yaml").write_text(config)
    done = run(
        *("collect", "--config", str(folder / "replayed.yaml"), "--quiet"),
        *("--input", str(folder / "tasks.jsonl"), "--output", str(folder / "replayed.jsonl")),
    )
    assert done.code == 0, done.err
    (row,) = [json.loads(line) for line in (folder / "replayed.jsonl").read_text().splitlines()]
    assert row["reward"] == 1.0


def test_a_resumed_run_notices_another_picture(folder: Path) -> None:
    assert collect(folder, "resumed.jsonl").code == 0
    assert collect(folder, "resumed.jsonl", "--resume", "--num-repeats", "2").code == 0
    (folder / "cat.png").write_bytes(png(3))
    try:
        done = collect(folder, "resumed.jsonl", "--resume", "--num-repeats", "3")
    finally:
        (folder / "cat.png").write_bytes(png(1))
    assert done.code == 1
    assert "line 1" in done.err


def test_images_to_a_model_of_text_alone_are_a_failure_and_no_reward(folder: Path) -> None:
    done = collect(folder, "text.jsonl", "--set", "models.policy.images=false")
    assert done.code == 1, done.err
    assert not (folder / "text.jsonl").read_text()
    (row,) = [
        json.loads(line) for line in (folder / "text.failures.jsonl").read_text().splitlines()
    ]
    assert row["reward"] is None
    assert row["failure"]["boundary"] == "MODEL"
    assert row["failure"]["status"]["reason"] == "PARAMETER_UNSUPPORTED"
    assert [one["data"] for one in row["media"]] == [png_url(1).partition(",")[2]]
