"""What a first user does wrong is said where it is wrong, with the next step."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from gymmesh_client.disk import cannot_write
from tests.support.cli import gym, rows_of, write_tasks

RECORDED = ["--set", "models.policy.path=answers.jsonl", "--quiet"]


def recorded(folder: Path) -> None:
    (folder / "answers.jsonl").write_text('{"match": "*", "answers": [{"text": "4"}]}\n')
    write_tasks(folder, [{"prompt": "2 + 2?", "expected_answer": "4"}])


async def test_a_metrics_port_that_is_taken(tmp_path: Path) -> None:
    recorded(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = ["collect", "-i", "tasks.jsonl", *RECORDED, "--metrics-port", port]
        done = await gym(*command, cwd=tmp_path)
    done.said(f"--metrics-port {port}: ", "in use. Choose another port")
    assert "None" not in done.err


async def test_an_unknown_default_environment_is_the_configurations_mistake(tmp_path: Path) -> None:
    recorded(tmp_path)
    command = ["collect", "-i", "tasks.jsonl", *RECORDED]
    done = await gym(*command, "--set", "defaults.environment=maths", cwd=tmp_path)
    done.said("defaults.environment: the configuration has no environment 'maths'", "'math'?")
    assert "tasks.jsonl:1" not in done.err
    named = await gym(*command, "--env", "maths", cwd=tmp_path)
    named.said("--env maths: there is no environment 'maths'; did you mean 'math'?")


async def test_env_list_ends_with_1_where_an_environment_is_broken(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text("environments: {a: {use: 'nowhere.py:A'}, math: {}}\n")
    done = await gym("env", "list", "--config", "mesh.yaml", cwd=tmp_path)
    assert (done.code, "there is no file nowhere.py" in done.out) == (1, True)
    assert (await gym("env", "list", cwd=tmp_path)).code == 0


def test_only_a_full_disk_is_told_to_make_room() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "make room" in str(cannot_write(Path("x"), full))
    for number in (errno.EROFS, errno.EACCES, errno.EPERM):
        said = str(cannot_write(Path("x"), OSError(number, os.strerror(number))))
        assert "make it writable" in said
        assert "room" not in said


async def test_a_merge_of_two_configurations_names_the_key(tmp_path: Path) -> None:
    write_tasks(tmp_path, [{"prompt": f"{n} + 1?", "expected_answer": "4"} for n in range(4)])
    (tmp_path / "answers.jsonl").write_text('{"match": "*", "answers": [{"text": "4"}]}\n')
    for shard, steps in (("0/2", "3"), ("1/2", "4")):
        output = f"s{shard[0]}.jsonl"
        command = ["collect", "-i", "tasks.jsonl", "-o", output, *RECORDED, "--run-id", "night"]
        command += ["--shard", shard, "--set", f"agents.tool_loop.max_steps={steps}"]
        done = await gym(*command, cwd=tmp_path)
        assert len(rows_of(tmp_path / output)) == 2, done.err
    merged = await gym("runs", "merge", "all.jsonl", "s0.jsonl", "s1.jsonl", cwd=tmp_path)
    merged.said("agents.tool_loop.max_steps was 3 and is 4")
