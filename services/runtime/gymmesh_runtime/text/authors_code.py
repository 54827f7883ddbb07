"""What the code of environments and agents may raise besides Exceptions.

`sys.exit()`, a panic of an extension written in Rust, and some errors of test libraries are not
Exceptions. They would silently end the process, or a task of ours on whose outcome somebody waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gymmesh_runtime.text.faults import words_of
from gymmesh_runtime.text.secrets import mask_secrets

IS_FACE = True  # see tools/import_faces.py

# What is ours, or the user's: a cancellation, a coroutine that is closed, Ctrl-C.
OURS: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)


def as_exception(error: BaseException) -> Exception:
    """The error itself, or, if it is not an Exception, an exception that names it.

    Raises:
        BaseException: the error, if it is one of `OURS`.
    """
    if isinstance(error, OURS):
        raise error
    if isinstance(error, Exception):
        return error
    said = f"({error.code!r})" if isinstance(error, SystemExit) else f": {error}"
    made = RuntimeError(f"{type(error).__name__}{said}")
    made.__cause__ = error
    return made


def described(error: BaseException) -> str:
    """The type and the text of an error, for a sentence; secrets are masked."""
    made = as_exception(error)
    return words_of(error) if made is error else mask_secrets(str(made))
