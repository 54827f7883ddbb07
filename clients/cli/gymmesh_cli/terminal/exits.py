"""Exit codes, and errors that a user can correct as one sentence without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from gymmesh_cli.terminal.writing import echo
from gymmesh_runtime.text import laid_out, one_line

DONE: Final = 0
NOTHING_DONE: Final = 1
USAGE: Final = 2
WITH_FAILURES: Final = 3
INTERRUPTED: Final = 130


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors that the user can correct become a sentence and an exit code. Others propagate."""
    try:
        yield
    except click.ClickException as error:
        # Click's own errors quote what was given.
        vars(error)["message"] = laid_out(error.message)  # it is declared final
        raise
    except click.exceptions.Exit:
        raise  # the end of --help, for example
    except KeyboardInterrupt:
        sys.exit(say("interrupted", INTERRUPTED))
    except Exception as error:
        known = _sentence_of(error)
        if known is None:
            raise
        sys.exit(say(*known))


def _sentence_of(error: Exception) -> tuple[str, int] | None:
    """What to say and the exit code for an error of the user's or the mesh's; None: a bug."""
    # Imported here because a command that needs no mesh should not wait for it.
    from gymmesh_client.problems import UserError
    from gymmesh_mesh.processes import StartError
    from gymmesh_runtime.config import ConfigError
    from gymmesh_runtime.errors import MeshError
    from gymmesh_runtime.serving import limit_met

    if isinstance(error, ConfigError):
        return error.sentences, USAGE
    if isinstance(error, UserError | StartError):
        return str(error), NOTHING_DONE
    if isinstance(error, MeshError):
        return one_line(error.message or error.reason_name), NOTHING_DONE
    return (limit, NOTHING_DONE) if (limit := limit_met(error)) else None


def say(sentence: str, code: int) -> int:
    """Write a sentence to stderr and return the exit code that goes with it."""
    echo("gym-cli: " + sentence.replace("\n", "\n  "), err=True)
    return code
