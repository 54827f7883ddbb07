"""The processes of a world of programs, each alone under its own supervisor."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos.processes import Worker, begin_workers
from tests.chaos.programs.plan import AGENT, ENVIRONMENT, MODEL, SANDBOXES, ProgramWorld
from tests.chaos.sandboxes.machine import SandboxMachine
from tests.unit.programs.rollouts import COMMAND

#: How long a sandbox outlives an environment that was killed.
TTL_S: Final = 4
_IDLE_S: Final = 6


@dataclass
class ProgramsUp:
    """What is up.

    Attributes:
        services: the processes by name; the registry is one of them.
        agent: where the agent is called.
        config: the mesh's file.
        machine: what is left of the sandboxes.
        mark: a variable of all that runs in them.
    """

    services: dict[str, Worker]
    agent: str
    config: Path
    machine: SandboxMachine
    mark: str
    calls_log: Path

    @property
    def calls(self) -> int:
        """How often the model was called so far."""
        return self.calls_log.stat().st_size if self.calls_log.exists() else 0

    @property
    def pid(self) -> int:
        """The process id of the sandbox service; 0: it is down."""
        process = self.services[SANDBOXES].process
        return process.pid if process is not None and process.returncode is None else 0


@asynccontextmanager
async def programs_up(world: ProgramWorld, folder: Path) -> AsyncIterator[ProgramsUp]:
    """Brings a world up in a folder, and takes it down."""
    async with AsyncExitStack() as stack:
        store, log = folder / "store", folder / "calls"
        config = _config(world, store, log)
        file = folder / "mesh.json"
        file.write_text(json.dumps(config))
        services, ports = await begin_workers(config, folder, set(), stack)
        mark = uuid.uuid4().hex
        yield ProgramsUp(
            services=services,
            agent=f"127.0.0.1:{ports[AGENT]}",
            config=file,
            machine=SandboxMachine(mark, store=store, daemon=""),
            mark=mark,
            calls_log=log,
        )


def _config(world: ProgramWorld, store: Path, log: Path) -> dict[str, Any]:
    return {
        "models": {
            MODEL: {
                "backend": "tests.chaos.programs.policy:LinesPolicy",
                "options": {"log": str(log), "slowest_s": world.slowest_s},
            }
        },
        "environments": {
            ENVIRONMENT: {
                "use": "tests.chaos.programs.desk:Desk",
                "options": {"ttl_s": TTL_S},
                "sandboxes": {"sandbox": SANDBOXES},
                "session_idle_s": _IDLE_S,
                "verify_timeout_s": 60,
            }
        },
        "agents": {
            AGENT: {
                "use": "program",
                "max_steps": 20,
                "options": {"command": COMMAND, "timeout_s": 60},
                "collect": {"resume_window_s": 8},
            }
        },
        "sandboxes": {
            SANDBOXES: {
                "adapts": False,
                "places": 4 * world.concurrency,
                "options": {"folder": str(store)},
            }
        },
        "defaults": {"environment": ENVIRONMENT, "agent": AGENT},
        "mesh": {"layout": "mesh"},
    }
