"""Images in files beside a task file: read with the task, and never from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import TaskDefaults, TaskProblem, TaskReader, TaskRow
from gymmesh_client.run_file.task_lines import TaskLines, described
from gymmesh_client.tasks import TaskFile
from gymmesh_responses import MOST_IMAGE_BYTES, params_to_dict
from tests.support.images import image_part, png

READER = TaskReader(TaskDefaults("math", "tool_loop"))


def written(folder: Path, *urls: str, prompt: bool = False) -> Path:
    """A task file with a task for each URL."""
    path = folder / "tasks.jsonl"
    rows: list[Any] = []
    for url in urls:
        content = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": url}]
        asked = [{"role": "user", "content": content}]
        rows.append({"prompt": asked} if prompt else {"responses_create_params": {"input": asked}})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def image_of(task: Any) -> Any:
    params: Any = params_to_dict(task.params)
    return params["input"][0]["content"][1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks" / "pictures").mkdir(parents=True)
    (tmp_path / "tasks" / "pictures" / "cat.png").write_bytes(png(1))
    (tmp_path / "secret.png").write_bytes(png(2))
    return tmp_path / "tasks"


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("path", ["pictures/cat.png", "./pictures/../pictures/cat.png"])
def test_a_path_is_read_from_the_task_files_folder(folder: Path, path: str, prompt: bool) -> None:
    file = TaskFile(READER, written(folder, path, prompt=prompt))
    assert image_of(next(iter(file))) == image_of(file[0]) == image_part(1)


def test_urls_stay(folder: Path) -> None:
    urls = ["https://example.org/a.png", "data:image/png;base64,AA==", "gs://bucket/a.png"]
    found = [image_of(task)["image_url"] for task in TaskFile(READER, written(folder, *urls))]
    assert found == urls


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("../secret.png", "is outside the task file's folder"),
        ("/etc/passwd", "is outside the task file's folder"),
        ("link.png", "is outside the task file's folder"),
        ("none.png", "is not a file in the task file's folder"),
        ("pictures", "is not a file in the task file's folder"),
        ("", "is not a file in the task file's folder"),
        ("notes.txt", "is not a PNG, JPEG, GIF or WebP"),
        ("drawing.png", "is not a PNG, JPEG, GIF or WebP"),
        ("large.png", "exceeds 20,000,000 bytes"),
        ("a\0b", "cannot be read"),
    ],
)
@pytest.mark.parametrize("prompt", [False, True])
def test_other_files_are_refused_by_name(folder: Path, url: str, why: str, prompt: bool) -> None:
    (folder / "link.png").symlink_to(folder.parent / "secret.png")
    (folder / "notes.txt").write_text("not a picture")
    (folder / "drawing.png").write_text("<svg onload='harm()'/>")
    (folder / "large.png").write_bytes(png() + bytes(MOST_IMAGE_BYTES))
    (problem,) = READER.read(written(folder, url, prompt=prompt))
    assert isinstance(problem, TaskProblem)
    place = "prompt" if prompt else "responses_create_params.input"
    assert problem.key == f"{place}[0].content[1].image_url"
    assert why in problem.sentence


def test_a_row_of_no_file_keeps_its_path() -> None:
    content = [{"type": "input_image", "image_url": "pictures/cat.png"}]
    row = {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
    entry = READER.row(1, json.dumps(row).encode())
    assert isinstance(entry, TaskRow)
    params: Any = params_to_dict(entry.task.params)
    assert params["input"][0]["content"] == content


def test_another_picture_is_another_task_file(folder: Path) -> None:
    path = written(folder, "pictures/cat.png", "https://example.org/a.png")
    before = TaskLines.of(path)
    assert TaskLines.of(path) == before
    (folder / "pictures" / "cat.png").write_bytes(png(3))
    after = TaskLines.of(path)
    assert after.sha256 != before.sha256
    assert described(before, after, path).startswith("line 1 (task 't-")
    assert before.digests[1] == after.digests[1]
