"""The embedded model for real: its weights, its server, and tool calls through the constraint."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gymmesh_model.local import (
    ConstraintOptions,
    LocalServer,
    ServerError,
    WeightsError,
    constrain,
    interpret,
    resolve_weights,
)
from tests.conftest import require

EXPRESSION = r"^[0-9]{1,3}( [-+*/] [0-9]{1,3}){1,3}$"
TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "pattern": EXPRESSION}},
            "required": ["expression"],
        },
    },
}
OPTIONS = ConstraintOptions(answer_pattern="-?[0-9]{1,6}", call_first=True)


@pytest.fixture(scope="module")
def weights() -> Path:
    require(
        importlib.util.find_spec("xllamacpp") is not None, "xllamacpp", "install gymmesh[local]"
    )
    try:
        return asyncio.run(resolve_weights())
    except WeightsError as error:
        require(False, "the default model's weights", str(error))
        raise


async def post(server: LocalServer, body: dict[str, Any]) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as session,
        session.post(
            f"{server.base_url}/chat/completions", json=body, headers=server.headers
        ) as reply,
    ):
        assert reply.status == 200
        found: dict[str, Any] = await reply.json()
        return found


async def test_a_tool_call_then_an_answer_both_within_their_patterns(weights: Path) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "How much is 12 + 30?"}]
    async with LocalServer(weights, context=512, parallel_slots=2) as server:
        body = {"messages": messages, "tools": [TOOL], "max_tokens": 64}
        step = interpret(await post(server, constrain(body, OPTIONS)), body, OPTIONS)
        message = step["choices"][0]["message"]
        call = message["tool_calls"][0]
        arguments = json.loads(call["function"]["arguments"])
        assert re.search(EXPRESSION, arguments["expression"])
        result = {"role": "tool", "tool_call_id": call["id"], "content": "42"}
        body = {**body, "messages": [*messages, message, result], "tool_choice": "none"}
        final = interpret(await post(server, constrain(body, OPTIONS)), body, OPTIONS)
        assert re.fullmatch("-?[0-9]{1,6}", final["choices"][0]["message"]["content"])
    assert not server.running


async def test_the_server_wants_its_key(weights: Path) -> None:
    async with LocalServer(weights, context=256, parallel_slots=1) as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.base_url}/chat/completions", json={}) as reply,
        ):
            assert reply.status == 401


async def test_a_file_that_is_no_model_ends_in_one_clear_error(
    tmp_path: Path, weights: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 64)
    server = LocalServer(broken)
    with pytest.raises(ServerError, match=r"broken\.gguf ended with code 1"):
        await server.start()
    assert not server.running


async def test_a_start_that_takes_too_long_leaves_nothing_running(weights: Path) -> None:
    server = LocalServer(weights, start_seconds=0.01)
    with pytest.raises(ServerError, match="was not ready"):
        await server.start()
    assert not server.running


def test_the_server_dies_with_a_killed_parent(weights: Path) -> None:
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from gymmesh_model.local import LocalServer\n"
        "async def main():\n"
        "    server = LocalServer(Path(sys.argv[1]), context=256, parallel_slots=1)\n"
        "    await server.start()\n"
        "    print(server._process.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", script, str(weights)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    child = int(found.stdout)
    for _ in range(300):
        if not _alive(child):
            return
        time.sleep(0.1)
    pytest.fail("the model server outlived its parent")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"
