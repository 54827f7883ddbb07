"""Rows of a workspace as task folders of Harbor, read and judged by the environment harbor."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gymmesh_cli.main import cli
from gymmesh_resource import Task, TaskInvalid
from gymmesh_resource.environments.harbor.task_toml import read_harbor
from gymmesh_resource.environments.workspace import WorkspaceEnvironment

ROW: Mapping[str, Any] = {
    "image": "base:1",
    "files": {"a.txt": "1\n", "deep/run": {"content": "#!/bin/sh\n", "mode": "755"}},
    "tests": {"files": {"check.sh": "test -s a.txt\n"}},
    "checks": [
        {"name": "filled", "run": "sh /tests/check.sh", "weight": 3},
        {"name": "says", "run": 'read -r it; echo "x $it y"; exit 4', "prints": "x {secret} y",
         "exit_codes": [4, 5]},
    ],
    "setup": ["echo 'set up' >\"it's\""],
    "env": {"A": 'a "b"\n'},
    "limits": {"cpus": 2, "memory_mb": 512},
    "solution": "echo 2 >a.txt",
}  # fmt: skip


def row_of(**changed: Any) -> dict[str, Any]:
    prompt = {"responses_create_params": {"input": "Do it."}}
    return {"task_id": "t", "environment": "workspace", **prompt, **ROW, **changed}


def written(place: Path, row: Mapping[str, Any], **options: Any) -> Path:
    for path, file in WorkspaceEnvironment(**options).harbor_folder(Task.of(row)).items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    return place


def test_a_row_is_a_folder_that_reads_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path, row_of())
    read = read_harbor(folder)
    (step,) = read.steps
    assert step.instruction == "Do it.\n"
    assert (read.box.cpus, read.box.memory_mb, read.box.env) == (2, 512, {"A": 'a "b"\n'})
    assert (read.box.workdir, read.box.network) == ("/workspace", "no-network")
    assert [one.path for one in step.artifacts] == ["/logs/artifacts", "/workspace"]
    assert step.tests.box is not None
    assert step.tests.box.network == "no-network"
    dockerfile = (folder / "environment/Dockerfile").read_text().splitlines()
    assert dockerfile[0] == "FROM base:1"
    assert json.loads(dockerfile[-1].removeprefix("RUN "))[2] == ROW["setup"][0]
    assert (folder / "environment/files/deep/run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("work", "scores", "reward"),
    [
        ("", {"filled": 1, "says": 1}, 1.0),
        (": >a.txt", {"filled": 0, "says": 1}, 0.25),
    ],
)
def test_the_script_writes_the_weighted_mean(
    tmp_path: Path, work: str, scores: Mapping[str, int], reward: float
) -> None:
    folder = written(tmp_path / "task", row_of(workdir=str(tmp_path / "work")))
    shutil.copytree(folder / "environment/files", tmp_path / "work")
    script = (folder / "tests/test.sh").read_text()
    # Nothing but places that this machine has.
    script = script.replace("/tests/", f"{folder}/tests/").replace("/logs/verifier", str(tmp_path))
    (folder / "tests/test.sh").write_text(script)
    subprocess.run(["sh", "-c", work or ":"], cwd=tmp_path / "work", check=True)
    subprocess.run(["sh", str(folder / "tests/test.sh")], check=True, stdout=subprocess.DEVNULL)
    assert json.loads((tmp_path / "reward.json").read_text()) == {"reward": reward, **scores}


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"image": ""}, "image"),
        ({"verify_in": "snapshot"}, "verify_in"),
        ({"tests": {"path": "/other", "files": {"a": "b"}}}, "tests.path"),
        ({"tests": {"user": "dev", "files": {"a": "b"}}}, "tests.user"),
        ({"tests": {"files": {"test.sh": "b"}}}, "tests"),
        ({"checks": [{"run": "a", "reward_file": "/r"}]}, "checks[0].reward_file"),
        ({"checks": [{"run": "a", "user": "0"}]}, "checks[0].user"),
        ({"checks": [{"run": "a", "name": "reward"}]}, "checks[0].name"),
        ({"responses_create_params": {"input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}},
         "input[0]"),
    ],
)  # fmt: skip
def test_what_a_folder_cannot_say_is_refused_by_its_key(changed: Any, key: str) -> None:
    with pytest.raises(TaskInvalid) as raised:
        WorkspaceEnvironment().harbor_folder(Task.of(row_of(**changed)))
    assert raised.value.field == key


def test_the_command_writes_folders_and_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        row_of(),
        {**row_of(verify_in="same"), "task_id": "suite/second"},
        {**row_of(image=""), "task_id": "third"},
        {**row_of(), "task_id": "../out"},
        {"task_id": "sum", "environment": "math", "expected_answer": "4",
         "responses_create_params": {"input": "2+2?"}},
    ]  # fmt: skip
    Path("tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    environments = {"workspace": {"use": "workspace"}, "math": {"use": "math"}}
    models = {"policy": {"backend": "replay", "path": "none.jsonl"}}
    Path("mesh.yaml").write_text(json.dumps({"models": models, "environments": environments}))
    words = ["data", "harbor", "tasks.jsonl", "--config", "mesh.yaml", "--output", "suite"]
    with pytest.raises(SystemExit) as ended:
        cli(words)
    assert ended.value.code == 3
    said = capsys.readouterr()
    assert "suite: 2 task folders, tasks not exported: 3" in said.out
    assert "tasks.jsonl:3: image: is missing" in said.err
    assert "tasks.jsonl:4: task_id: '../out'" in said.err
    assert "tasks.jsonl:5: environment: MathEnvironment judges with its own Python code" in said.err
    assert read_harbor(Path("suite/suite/second")).steps[0].tests.box is None
    with pytest.raises(SystemExit) as ended:
        cli(words)
    assert ended.value.code == 1
    assert "suite already exists and is not empty" in capsys.readouterr().err
