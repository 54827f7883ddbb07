"""The samples of an Inspect task, read from a process of the framework's own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.peer_processes import PeerFault, PeerOptions, PeerProcess, PeerRaised

_PAGE: Final = 50
_PAGE_S: Final = 60.0 + 10.0 * _PAGE


@dataclass(frozen=True, slots=True)
class TaskListing:
    """What there is to know of a task.

    about: see `load` of the script. rows: its samples by id: `input`, `sandbox`, `problem`.
    """

    about: dict[str, Any]
    rows: dict[str, dict[str, Any]]


def read_listing(options: PeerOptions, load: dict[str, Any], start_s: float) -> TaskListing:
    """Loads the task in a process of its own and reads its samples. Blocks; `start_s` bounds the
    start and the load, each. Raises DefinitionError.
    """
    # In a thread of its own: the caller may be in an event loop.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _read(options, load, start_s)).result()


async def _read(options: PeerOptions, load: dict[str, Any], start_s: float) -> TaskListing:
    peer = PeerProcess(options)
    rows: dict[str, dict[str, Any]] = {}
    try:
        await peer.open()
        about = await peer.call("load", load | {"run": False}, start_s)
        while len(rows) < about["samples"]:
            wanted = {"start": len(rows), "count": _PAGE}
            page = await peer.call("samples", wanted, _PAGE_S)
            rows |= {row["id"]: row for row in page}
    except PeerFault as error:
        raise not_loaded(error, load["task"], options.python) from None
    finally:
        await peer.close()
    return TaskListing(about, rows)


def not_loaded(error: PeerFault, task: str, python: str) -> DefinitionError:
    """Why a task's process can't be used, in one sentence with the next step."""
    if isinstance(error, PeerRaised) and error.kind == "ModuleNotFoundError":
        for module, package in (("inspect_ai", "inspect-ai"), ("openai", "openai")):
            if error.message == f"No module named {module!r}":
                return DefinitionError(
                    f"The interpreter {python} lacks the package {package}: run {python} -m pip "
                    "install inspect-ai openai, or name another interpreter by the option python."
                )
    return DefinitionError(f"The Inspect task {task} could not be loaded: {error}.")
