"""Which files a command may overwrite: never one of its inputs, and never a file that is not its
own.

Files are compared by device and inode, so links, different spellings of a path, and a folder's
second name are recognised.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gymmesh_client.problems import UserError, unreadable

OWNER_ONLY: Final = 0o600
"""Mode of a new file: rows hold prompts, answers and whatever the tools returned."""
_OWNER_ONLY_FOLDER: Final = 0o700
_LONGEST_FIRST_LINE: Final = 64 * 1024 * 1024


def refuse_inputs(outputs: Iterable[Path], inputs: Mapping[str, Iterable[Path]]) -> None:
    """Reject outputs that are also inputs, under any name.

    Args:
        outputs: the files that the command creates, replaces or removes.
        inputs: the files that the command reads, by the user's name for them (`--input`). A folder
            means all files in it.

    Raises:
        UserError: an output is one of the inputs.
    """
    known = {found: path for path in outputs if (found := _identity(path)) is not None}
    if not known:
        return
    for what, paths in inputs.items():
        for path in paths:
            for one in _files_in(path):
                output = known.get(_identity(one) or (0, 0))
                if output is not None:
                    same = "" if output == one else f", which is the same file as {one},"
                    raise UserError(
                        f"{output}{same} is an input of {what} and would be overwritten. Choose "
                        "another output"
                    )


def refuse_foreign(path: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    """Refuse to replace a file that is not recognisably ours; an empty or absent one may go.

    Args:
        is_ours: looks into a file that is not empty; may raise OSError.
        what: what ours would be, such as `a run's output`.

    Raises:
        UserError: it is something else, or cannot be looked into.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"{path} is not a file. Choose another output")
        if about.st_size and not is_ours(path):
            raise UserError(
                f"{path} is not {what}, so the file is not replaced. Move the file, or choose "
                "another output"
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from None


def refuse_used(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that is there and not empty, unless it may be replaced. Raises UserError."""
    with contextlib.suppress(OSError):
        if not overwrite and path.stat().st_size:
            raise UserError(
                f"{path} already exists and is not empty. Replace the file with --overwrite, or "
                "choose another file"
            )


def refuse_no_folder(folder: Path) -> None:
    """Raise UserError where a folder is not there and cannot be made."""
    above = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    if not above.is_dir():
        raise UserError(f"{above} is not a folder. Choose another output")


def is_task_file(path: Path) -> bool:
    """Whether a file begins with a task's row. Raises OSError."""
    return "responses_create_params" in (first_object(path) or {})


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Where to write a file that takes the place of `path` once it is whole, and leaves it alone
    when that fails. Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        draft.replace(path.resolve())  # through a link to what it leads to
    finally:
        draft.unlink(missing_ok=True)


def first_object(path: Path) -> dict[str, Any] | None:
    """The JSON object on a file's first line that is not blank, or None. Raises OSError."""
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_FIRST_LINE):
            if line.strip():
                with contextlib.suppress(ValueError, RecursionError):
                    found = json.loads(line)
                    return found if type(found) is dict else None
                return None
    return None


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, for their owner alone. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            folder.mkdir(_OWNER_ONLY_FOLDER)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        # A power cut must not take the folder away from under what is on disk in it.
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Put the entries of a folder's files on disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def draft_of(path: Path, mark: str = "") -> Path:
    """Where a file is written before it takes its place; the mark tells one draft from another."""
    return path.with_name(f"{path.name}.{mark}.tmp" if mark else f"{path.name}.tmp")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; a new one for its owner alone, one that is there keeps
    its mode. Raises OSError.
    """
    draft = draft_of(path)
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
    with os.fdopen(fd, "wb") as file:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(fd, stat.S_IMODE(path.stat().st_mode))
        file.write(content.encode() if isinstance(content, str) else content)
    draft.replace(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in the name
        return None
    # A folder or a device is not written over by writing beside or into it.
    return (about.st_dev, about.st_ino) if stat.S_ISREG(about.st_mode) else None


def _files_in(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name)
