"""`gym-cli serve environment NAME --as …`: other frameworks' protocols beside gRPC."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import pytest

from tests.support.cli import gym
from tests.support.served import serve

_MCP = ",mcp" if find_spec("mcp") else ""


async def test_it_serves_and_goes_down(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"task_id": "mine", "prompt": "Say 3.", "expected_answer": 3}))
    token = tmp_path / "token"
    token.write_text("let-me-in")
    served = await serve(
        "environment", "math", "--as", f"openenv, ors,nemo_gym{_MCP}", "--as-tasks", tasks,
        "--as-token-file", token, log=tmp_path / "log",
    )  # fmt: skip
    try:
        url = served.said["protocols_url"]
        assert served.said["address"]  # gRPC
        assert bool(served.said.get("mcp_url")) == bool(_MCP)
        headers = {"Authorization": "Bearer let-me-in"}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.ws_connect(f"{url}/ws") as socket,
        ):
            await socket.send_json({"type": "reset", "data": {"task_id": "mine"}})
            assert (await socket.receive_json())["data"]["observation"]["text"] == "Say 3."
            action = {"type": "answer", "answer": "\\boxed{3}"}
            await socket.send_json({"type": "step", "data": action})
            assert (await socket.receive_json())["data"]["reward"] == 1.0
        assert await served.goes_down(120) == 0
        log = served.log.read_text()
        assert f"environment math: served as openenv, ors, nemo_gym at {url}" in log
        assert "let-me-in" not in log
        assert "Traceback" not in log
    finally:
        await served.kill()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["environment", "math", "--as", "openenv,fly"], ["no protocol 'fly'"]),
        (["environment", "math", "--as-port", "9600"], ["--as, which selects the protocols"]),
        (["model", "policy", "--as", "ors"], ["--as applies only to environments"]),
        (["environment", "game", "--as", "nemo_gym"], ["'game' can't be served as nemo_gym"]),
        (
            ["environment", "math", "--as", "ors", "--as-host", "0.0.0.0"],
            ["--as-host 0.0.0.0: ", "add --insecure"],
        ),
        (
            ["environment", "math", "--as", "ors", "--as-host", "0.0.0.0", "--insecure"],
            ["--as-token-file: '0.0.0.0' is reachable"],
        ),
        (
            ["environment", "math", "--as", "ors", "--as-tasks", "none.jsonl"],
            ["--as-tasks: none.jsonl cannot be read"],
        ),
        (
            ["environment", "math", "--as", "ors", "--as-tasks", "a", "--as-tasks", "train=b"],
            ["names split 'train' twice: a and b"],
        ),
    ],
)
async def test_what_is_wrong_is_said(arguments: list[str], words: list[str]) -> None:
    ended = await gym("serve", *arguments)
    assert ended.code == 2
    ended.said(*words)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"task_id": "b", "expected_answer": "2"}', ":2: prompt: is missing"),
        ('{"prompt": " ", "expected_answer": "2"}', ":2: prompt: is empty"),
        ('{"prompt": "What is 1 + 1?"}', ":2: expected_answer: "),
        ("[]", ":2: must be an object"),
        ('{"prompt": ', ":2: is not JSON"),
    ],
)
async def test_a_wrong_row_is_named_when_its_file_is_loaded(
    tmp_path: Path, row: str, said: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"prompt": "What is 1 + 1?", "expected_answer": "2"}}\n{row}\n')
    ended = await gym("serve", "environment", "math", "--as", "openenv", "--as-tasks", file)
    assert ended.code == 2
    ended.said(f"--as-tasks: {file}{said}")
