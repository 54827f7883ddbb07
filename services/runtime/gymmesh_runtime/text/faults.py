"""Describes an exception and where it was raised, in words that may be shown and stored.

Used if the code of an author (an environment, an agent) fails. The failure has the metadata of
`describe`, and logs have one traceback for each `traceback_id`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from gymmesh_runtime.text.secrets import mask_secrets

_MAX_WORDS: Final = 300  # characters
_MOST_UPS: Final = 2  # how many folders above the working directory a path is still written from
_STDLIB: Final = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib")})
# Our own modules; a file with an environment that is loaded by its path is not one of them.
_OURS: Final = ("gymmesh.", "gymmesh_")
_AUTHORS: Final = "gymmesh_environment_"
_READY: Final = "gymmesh_resource.environments."
_AUTHORS_RANK: Final = 0
_INSTALLED_RANK: Final = 1
_OUR_RANK: Final = 2


def describe(error: BaseException) -> dict[str, str]:
    """The metadata of a fault: `exception` (type and text), and `at` if the place is known."""
    place = place_of(error)
    return {"exception": words_of(error)} | ({"at": place} if place else {})


def words_of(error: BaseException) -> str:
    """`KeyError: 'wanted'`: the type and the text in one line, with secrets masked."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception of an author's own may not even have a text
        text = "(the text of this error can't be read)"
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    words = mask_secrets(words)
    return words if len(words) <= _MAX_WORDS else words[: _MAX_WORDS - 1] + "…"


def os_reason(error: Exception) -> str:
    """An operating system's error in words, such as `no such file or directory`."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def place_of(error: BaseException) -> str:
    """The place, such as `file.py:12`, where the author's code raised the error or called the code
    that raised it; or empty.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    fallback = ""
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        frames = list(traceback.walk_tb(at.__traceback__))
        found = _authors_frame(frames)
        if found is not None:
            return shown_place(found[0].f_code.co_filename, found[1])
        if frames and not fallback:
            fallback = shown_place(frames[-1][0].f_code.co_filename, frames[-1][1])
        at = at.__cause__
    return fallback


def shown_traceback(
    error: BaseException, *, installed: bool = True
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """The part of an exception to log, for `exc_info`: its traceback from the author's first frame
    on, without our frames before it. If no frame is the author's, the whole traceback.

    installed: whether an installed package is treated as the author's code. Pass False if the
    author's code may have no part in the error: then our code called the library.
    """
    most = _INSTALLED_RANK if installed else _AUTHORS_RANK
    at = error.__traceback__
    while at is not None:
        if _rank(at.tb_frame.f_code.co_filename, _module(at.tb_frame)) <= most:
            break
        at = at.tb_next
    return type(error), error, at or error.__traceback__


def traceback_id(error: BaseException) -> str:
    """Eight hex digits, the same for all exceptions of one type from one place."""
    mark = hashlib.blake2b(type(error).__qualname__.encode(), digest_size=4)
    for frame, line in traceback.walk_tb(error.__traceback__):
        mark.update(f"\0{frame.f_code.co_filename}\0{line}".encode(errors="replace"))
    return mark.hexdigest()


def shown_place(file: str, line: int) -> str:
    """A file and line as the author knows them: relative to the working directory, if the file is
    near it.
    """
    return f"{_shown_path(file)}:{line}"


def _authors_frame(frames: list[tuple[FrameType, int]]) -> tuple[FrameType, int] | None:
    """The innermost frame of the author's own code.

    Where all is installed: the innermost of the package that the service called.
    """
    ranks = [_rank(frame.f_code.co_filename, _module(frame)) for frame, _ in frames]
    if _AUTHORS_RANK in ranks:
        return frames[len(ranks) - 1 - ranks[::-1].index(_AUTHORS_RANK)]
    if _INSTALLED_RANK not in ranks:
        return None
    package = _package(frames[ranks.index(_INSTALLED_RANK)][0])
    return [one for one in frames if _package(one[0]) == package][-1]


def _rank(file: str, module: str) -> int:
    """0: an author's file; 1: an installed environment or library; 2: ours and Python's."""
    if module.startswith(_READY):
        return _INSTALLED_RANK
    if file.startswith("<") or (module.startswith(_OURS) and not module.startswith(_AUTHORS)):
        return _OUR_RANK
    if "site-packages" in file or "dist-packages" in file:
        return _INSTALLED_RANK
    return _OUR_RANK if file.startswith(_STDLIB) else _AUTHORS_RANK


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    module = _module(frame)
    return _READY if module.startswith(_READY) else module.partition(".")[0]


def _shown_path(file: str) -> str:
    path = Path(file)
    if not path.is_absolute():
        return file
    try:
        here = Path.cwd()
    except OSError:  # it is gone
        return path.name
    roots = [here, *(Path(one) for one in sys.path if one and Path(one).is_absolute())]
    under = [root for root in roots if root != Path("/") and path.is_relative_to(root)]
    if under:
        nearest = here if here in under else max(under, key=lambda root: len(root.parts))
        return str(path.relative_to(nearest))
    upward = os.path.relpath(path, here)
    return upward if upward.count("..") <= _MOST_UPS else f"{path.parent.name}/{path.name}"
