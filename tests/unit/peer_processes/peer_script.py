"""What the peer processes of these tests run; it imports the standard library only."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

gate = asyncio.Event()
children: list[asyncio.subprocess.Process] = []


async def echo(host: Any, params: dict[str, Any]) -> Any:
    print("printed by the framework")
    return params


async def wait_for_gate(host: Any, params: dict[str, Any]) -> str:
    await gate.wait()
    return "passed"


async def open_gate(host: Any, params: dict[str, Any]) -> None:
    gate.set()


async def fail(host: Any, params: dict[str, Any]) -> None:
    raise ValueError(f"refused: {params['key']}")


async def unwritable(host: Any, params: dict[str, Any]) -> Any:
    return float("nan")


async def ask(host: Any, params: dict[str, Any]) -> Any:
    try:
        return await host.ask(params["method"], params)
    except Exception as error:
        return f"{error.kind}: {error}"  # type: ignore[attr-defined]  # AskFailed


async def exit_now(host: Any, params: dict[str, Any]) -> None:
    print("the last words")
    os._exit(3)


async def kill_me(host: Any, params: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def garbage(host: Any, params: dict[str, Any]) -> None:
    sent = params["sent"].encode()
    os.write(host._replies, sent[:-1] * params["times"] + sent[-1:])
    await asyncio.sleep(3600)


async def wait(host: Any, params: dict[str, Any]) -> None:
    Path(params["file"] + ".began").touch()
    try:
        await asyncio.sleep(3600)
    finally:
        Path(params["file"]).write_text("given up", encoding="utf-8")


async def block(host: Any, params: dict[str, Any]) -> None:
    while not Path(params["until"]).exists():
        time.sleep(0.01)  # noqa: ASYNC251 - it holds up everything else, as a framework may


async def hang(host: Any, params: dict[str, Any]) -> None:
    time.sleep(3600)  # noqa: ASYNC251 - what a hang is


async def spawn(host: Any, params: dict[str, Any]) -> list[int]:
    """A child in a session of its own, and an orphan: the child of one that ended."""
    child = await asyncio.create_subprocess_exec("sleep", "3600", start_new_session=True)
    children.append(child)
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", "setsid sleep 3600 >&- 2>&- & echo $!", stdout=subprocess.PIPE
    )
    output, _ = await shell.communicate()
    return [os.getpid(), child.pid, int(output)]


async def close(host: Any, params: dict[str, Any]) -> None:
    if file := os.environ.get("CLOSED_FILE"):
        Path(file).write_text("closed", encoding="utf-8")


_ALL = (
    *(echo, wait_for_gate, open_gate, fail, unwritable, ask, exit_now, kill_me, garbage),
    *(wait, block, hang, spawn, close),
)
METHODS = {method.__name__: method for method in _ALL}
