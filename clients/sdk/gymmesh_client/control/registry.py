"""The registry of a user's runs: a small file each, readable by its owner alone, since it holds
the token. By it other terminals find a run.

    <runtime folder>/gymmesh/runs/<run id>.json   {"run_id", "address", "token", "pid", "output"}
"""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import platformdirs

from gymmesh_client.log_records import is_run_id


@dataclass(frozen=True, slots=True)
class RunEntry:
    """Where a run is served.

    Attributes:
        address: host and port of its RunService.
        token: what callers must show; never printed.
        pid: the collector's process.
        output: where its rows go.
    """

    run_id: str
    address: str
    token: str
    pid: int
    output: str


def registry_folder() -> Path:
    """Where the files are; GYMMESH_RUNTIME_DIR overrides the platform's folder."""
    own = os.environ.get("GYMMESH_RUNTIME_DIR")
    if own:
        return Path(own) / "runs"
    with warnings.catch_warnings():
        # Where no session manager has made a folder (in containers), another one does as well,
        # and the warning would help no user.
        warnings.simplefilter("ignore", UserWarning)
        return platformdirs.user_runtime_path("gymmesh") / "runs"


def write_entry(entry: RunEntry) -> Path:
    """Write a run's entry. Raises OSError, and ValueError for an id that is no run's."""
    if not is_run_id(entry.run_id):
        raise ValueError(f"{entry.run_id!r} is not a run id")
    folder = registry_folder()
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:  # others could put a file of theirs there
        folder.chmod(0o700)
    path = folder / f"{entry.run_id}.json"
    draft = folder / f".{entry.run_id}.{entry.pid}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(entry))
    draft.replace(path)
    return path


def remove_entry(entry: RunEntry) -> None:
    """Remove a run's entry, unless another process has written it anew since."""
    path = registry_folder() / f"{entry.run_id}.json"
    if _read(path) == entry:
        with contextlib.suppress(OSError):
            path.unlink()


def read_entries() -> Iterator[RunEntry]:
    """The entries of runs whose process lives, oldest first; others are removed."""
    with contextlib.suppress(OSError):
        for path in sorted(registry_folder().glob("*.json"), key=_age):
            entry = _read(path)
            if entry is not None and _lives(entry.pid):
                yield entry
            elif entry is not None:
                with contextlib.suppress(OSError):
                    path.unlink()


def _read(path: Path) -> RunEntry | None:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            # Another user's file could send our calls, tokens included, to his server.
            if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
                return None
            entry = msgspec.json.decode(file.read(65536), type=RunEntry)
    except (OSError, ValueError):
        return None
    return entry if is_run_id(entry.run_id) and entry.pid > 0 else None


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True
