"""The samples of an Inspect task, read by a process of Inspect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.peer_processes import (
    PeerFault,
    PeerOptions,
    PeerProcess,
    PeerRaised,
    with_process,
)

_PAGE: Final = 50
_PAGE_S: Final = 60.0 + 10.0 * _PAGE
_read: dict[str, TaskListing] = {}


@dataclass(frozen=True, slots=True)
class TaskListing:
    """The description and the samples of a task.

    about: see `load` of the script. rows: its samples by id: `input`, `sandbox`, `problem`.
    """

    about: dict[str, Any]
    rows: dict[str, dict[str, Any]]


def listing_of(options: PeerOptions, load: dict[str, Any], start_s: float) -> TaskListing:
    """The samples of a task. Read once for all environments of this process that run it, as long
    as its file does not change. Blocks; `start_s` bounds the load. Raises DefinitionError.
    """
    file = Path(options.cwd or ".", load["task"].partition("@")[0])
    changed = file.stat().st_mtime_ns if file.is_file() else 0
    key = repr((options, load, changed))
    if key not in _read:
        _read[key] = _read_listing(options, load, start_s)
    return _read[key]


def _read_listing(options: PeerOptions, load: dict[str, Any], start_s: float) -> TaskListing:
    """In a process of its own, which ends then."""

    async def read(process: PeerProcess) -> TaskListing:
        rows: dict[str, dict[str, Any]] = {}
        about = await process.call("load", load, start_s)
        while len(rows) < about["samples"]:
            wanted = {"start": len(rows), "count": _PAGE}
            page = await process.call("samples", wanted, _PAGE_S)
            rows |= {row["id"]: row for row in page}
        return TaskListing(about, rows)

    try:
        return with_process(options, read)
    except PeerFault as error:
        raise not_loaded(error, load["task"], options.python) from None


def not_loaded(error: PeerFault, task: str, python: str) -> DefinitionError:
    """Why a task's process can't be used, in one sentence with the next step."""
    if isinstance(error, PeerRaised) and error.kind == "ModuleNotFoundError":
        for module, package in (("inspect_ai", "inspect-ai"), ("openai", "openai")):
            if error.message == f"No module named {module!r}":
                return DefinitionError(
                    f"The interpreter {python} lacks the package {package}: run {python} -m pip "
                    "install inspect-ai openai, or set the option 'python' to another interpreter."
                )
    problem = str(error).rstrip(".")
    return DefinitionError(f"The Inspect task {task} could not be loaded: {problem}.")
