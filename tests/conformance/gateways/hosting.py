"""How a capture gateway of another project is played: JSON lines with a process of its Python.

Standard library only, for any Python from 3.11. A file `peer_NAME.py` beside this one runs in the
interpreter in which the project is installed. It says `{"ready": VERSION}` and then answers each
line of standard input: `{"open": {"upstream": URL, "program": NAME}}` with the rollout's `url` and
`key`, and `{"finish": {}}` with its `calls` and `samples`, whose fields are those of CaughtCall and
CaughtSample, and with `sampled` where the process itself was the model's server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any, Protocol


class HostedRollout(Protocol):
    """A rollout at the gateway; `url` without `/v1`, `key` as a program shows it."""

    url: str
    key: str

    async def finish(self) -> dict[str, Any]:
        """What was captured: `calls`, and `samples` and `sampled` where there are any."""
        ...


Open = Callable[[str, str], AbstractAsyncContextManager[HostedRollout]]


def host(package: str, open_rollout: Open) -> None:
    """Play rollouts, one after the other, until standard input ends.

    Args:
        package: the one whose version is reported.
        open_rollout: called with the model's address, which ends in `/v1`, and the program.
    """
    # What libraries print goes to standard error.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    say({"ready": version(package)})
    asyncio.run(_play(open_rollout, say))


async def _play(open_rollout: Open, say: Callable[[dict[str, Any]], None]) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)["open"]
        try:
            async with open_rollout(asked["upstream"], asked["program"]) as rollout:
                say({"url": rollout.url, "key": rollout.key})
                if not await asyncio.to_thread(sys.stdin.readline):
                    return
                say(await rollout.finish())
        except Exception as error:
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"})
