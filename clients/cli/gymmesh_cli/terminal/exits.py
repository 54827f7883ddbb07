"""Exit codes, and errors that a user can correct as one sentence without a traceback."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Final, NoReturn, ParamSpec

from gymmesh_cli.terminal.writing import echo
from gymmesh_runtime.text import one_line

P = ParamSpec("P")

DONE: Final = 0
NOTHING_DONE: Final = 1
USAGE: Final = 2
WITH_FAILURES: Final = 3
INTERRUPTED: Final = 130


def speaks_plainly(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """Make a command's number its exit code, and errors that the user can correct a sentence."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        try:
            code = command(*args, **kwargs)
        except KeyboardInterrupt:
            code = say("interrupted", INTERRUPTED)
        except BrokenPipeError:
            # The reader of the output has gone, and would not see a message either.
            sys.stderr.close()
            code = NOTHING_DONE
        except Exception as error:
            known = _sentence_of(error)
            if known is None:
                raise
            code = say(*known)
        sys.exit(code)

    return wrapper


def _sentence_of(error: Exception) -> tuple[str, int] | None:
    """What to say and the exit code for an error of the user's or the mesh's; None: a bug."""
    # Imported here because a command that needs no mesh should not wait for it.
    from gymmesh_client.problems import UserError
    from gymmesh_mesh.processes import StartError
    from gymmesh_runtime.config import ConfigError
    from gymmesh_runtime.errors import MeshError

    if isinstance(error, ConfigError):
        return str(error), USAGE
    if isinstance(error, UserError | StartError):
        return str(error), NOTHING_DONE
    if isinstance(error, MeshError):
        return one_line(error.message or error.reason_name), NOTHING_DONE
    return None


def say(sentence: str, code: int) -> int:
    """Write a sentence to stderr and return the exit code that goes with it."""
    echo("gym-cli: " + sentence.replace("\n", "\n  "), err=True)
    return code
