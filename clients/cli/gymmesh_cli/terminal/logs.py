"""Where the log of a command goes: to a file of the run, or to stderr.

with logged():               every command: on stderr, each traceback once
with logged_to(files.log):   within it, collect: only urgent lines reach the terminal
with logged_as_service():    within it, serve and up: on stderr, from INFO on, as lines of a log

The latter two write text, or JSON lines with `--log-format json`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import click

from gymmesh_cli.terminal.help import OptionGroup, option
from gymmesh_cli.terminal.writing import echo
from gymmesh_runtime.telemetry import Concealing, LogFormat, OneOfEach, formatter
from gymmesh_runtime.text import mask_secrets

_TERMINAL: Final = "gym-cli: %(message)s"
# The log's first line, which a file of the user's does not have.
_TITLE: Final = "# gym-cli: what went wrong in this run\n"

log_format_option = option(
    "--log-format",
    group=OptionGroup.MONITORING,
    type=click.Choice(["text", "json"]),
    help=(
        "Format of log lines: text, or JSON objects with the ids of the rollout and the "
        "run (see docs/reference/observability.md). Default: the key mesh.log_format, or "
        "else text."
    ),
)


@contextmanager
def logged() -> Iterator[None]:
    """Log to stderr while the context is open: warnings and errors, each traceback once, no
    secrets.
    """
    handler = _OnTerminal(sys.stderr)
    handler.setFormatter(Concealing(_TERMINAL))
    handler.addFilter(OneOfEach())
    with _root(handler):
        yield


@contextmanager
def logged_to(path: Path, *, anew: bool, log_format: LogFormat = "text") -> Iterator[None]:
    """Log to a file, which is created with the first line.

    anew: whether to discard the file's old content. At the end, stderr names the log file.
    """
    if anew:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    handler = _RunLog(path, log_format)
    with _root(handler):
        try:
            yield
        finally:
            handler.end()
    if handler.failures:
        echo(f"gym-cli: errors were logged to {path}, each traceback once", err=True)
    elif handler.written:
        warnings = "1 warning" if handler.written == 1 else f"{handler.written} warnings"
        echo(f"gym-cli: {warnings} logged in {path}", err=True)


@contextmanager
def logged_as_service(log_format: LogFormat = "text") -> Iterator[None]:
    """Log to stderr while the context is open, as a service does: from INFO on, without secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format))
    handler.addFilter(OneOfEach())
    with _root(handler, logging.INFO):
        yield


class _OnTerminal(logging.StreamHandler[TextIO]):
    """What a command shows of its log."""


@contextmanager
def _root(handler: logging.Handler, level: int = logging.WARNING) -> Iterator[None]:
    """The handler takes the place of the command's others meanwhile."""
    root = logging.getLogger()
    before, others = root.level, [one for one in root.handlers if isinstance(one, _OnTerminal)]
    for one in others:
        root.removeHandler(one)
    root.setLevel(min(before, level))
    handler.setLevel(level)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(bool(others))
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()
        for one in others:
            root.addHandler(one)


class _RunLog(logging.Handler):
    """The log file of a run. What is urgent is said on stderr, too.

    A file that cannot be written costs the log, and never the run.
    """

    def __init__(self, path: Path, log_format: LogFormat) -> None:
        super().__init__()
        self._title = _TITLE if log_format == "text" else ""
        self._path = path
        self._file: TextIO | None = None
        self._kinds = OneOfEach()
        #: How many kinds of records were written.
        self.written = 0
        #: How many of them say that something failed, and do not only warn.
        self.failures = 0
        self.setFormatter(formatter(log_format))

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if getattr(record, "urgent", False):
            echo(f"gym-cli: {mask_secrets(message)}", err=True)
        if not self._kinds.filter(record):
            return
        first = message == record.getMessage()
        if self._write(self.format(record)) and first:
            self.written += 1
            self.failures += record.levelno > logging.WARNING or record.exc_info is not None

    def end(self) -> None:
        """Write the number of repetitions of each repeated message."""
        for count, said in self._kinds.repeated():
            text = f"{count} times in all: {said}"
            record = logging.LogRecord("gymmesh", logging.INFO, "", 0, text, None, None)
            self._write(self.format(record) if not self._title else mask_secrets(text))

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        super().close()

    def _write(self, text: str) -> bool:
        try:
            if self._file is None:
                self._file = self._opened()
            self._file.write(text + "\n")
            self._file.flush()
        except OSError:
            return False
        return True

    def _opened(self) -> TextIO:
        # Here, as it imports more than `gym-cli --help` should wait for.
        from gymmesh_client.safe_writes import OWNER_ONLY

        file = open(  # noqa: SIM115  # `close` closes it
            self._path,
            "a",
            encoding="utf-8",
            errors="backslashreplace",
            opener=partial(os.open, mode=OWNER_ONLY),
        )
        if not file.tell():
            file.write(self._title)
        return file
