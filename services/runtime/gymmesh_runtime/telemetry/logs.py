"""Logs that stay readable when many things fail in the same way: one traceback for each kind of
failure, and no secrets.

`OneOfEach` passes a record at its 1st, 10th, 100th, 1000th … occurrence. `Concealing` writes a
record as text and `JsonLines` as one JSON object, both without secrets. Commands and worker
processes use them on their handlers.
"""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from gymmesh_runtime.telemetry.current_rollout import current_rollout
from gymmesh_runtime.text import PlainFormatter, mask_secrets, plain_json

LogFormat = Literal["text", "json"]

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# The services of this process, and their instance ids.
_process: dict[str, str] = {}
_MOST_KINDS: Final = 2000
# The loggers of gymmesh_runtime.errors, and of the faults of environments.
_WITH_TRACEBACKS: Final = ("gymmesh.errors", "gymmesh.resource")


class Concealing(PlainFormatter):
    """Formats a record as plain text, with `***` for each secret."""

    def __init__(self, fmt: str = FORMAT) -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object on one line, with `***` for each secret.

    Keys: `time` (UTC, RFC 3339), `level`, `logger`, `message`; if known, `service` and `instance`
    (of this process; several are separated by commas), `run_id`, `rollout_id` and `trace_id`; and
    `exception` (the traceback). A record's own `run_id` and `rollout_id` (`extra=`) override those
    of the code that logs. Control characters are escaped, also in values.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": mask_secrets(record.getMessage()),
            **_process,
        }
        now = current_rollout.get()
        for key in ("run_id", "rollout_id"):
            value = getattr(record, key, "") or getattr(now, key, "")
            if value:
                line[key] = str(value)
        # Here, as it imports more than `gym-cli --help` should wait for.
        from gymmesh_runtime.telemetry.tracing import active

        traces = active()
        if traces is not None and (trace_id := traces.trace_id()):
            line["trace_id"] = trace_id
        if record.exc_info:
            line["exception"] = mask_secrets(self.formatException(record.exc_info))
        return plain_json(json.dumps(line, ensure_ascii=False))


def formatter(log_format: LogFormat) -> logging.Formatter:
    """The formatter that writes records in this format."""
    return JsonLines() if log_format == "json" else Concealing()


class NamedService(Protocol):
    """A service, as a log line names it."""

    @property
    def name(self) -> str:
        """The service's name in the mesh."""
        ...

    @property
    def instance_id(self) -> str:
        """The id of this instance of the service."""
        ...


def name_process(services: Iterable[NamedService]) -> None:
    """Sets the services of this process, which JSON lines name from now on."""
    served = list(services)
    _process["service"] = ",".join(one.name for one in served)
    _process["instance"] = ",".join(one.instance_id for one in served)


class OneOfEach(logging.Filter):
    """Passes one record of each kind, and counts the others.

    Records with a traceback are of one kind if their exceptions have one type and come from one
    place. Other records are of one kind if they have the same text. A later record that passes has
    the count and no traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: OrderedDict[Any, tuple[int, str]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        count, said = self._counts.get(kind, (0, ""))
        count += 1
        self._counts[kind] = (count, said or record.getMessage())
        self._counts.move_to_end(kind)
        if len(self._counts) > _MOST_KINDS:
            self._counts.popitem(last=False)
        if count == 1:
            return True
        if count < 10 or not math.log10(count).is_integer():
            return False
        record.msg, record.args = f"{record.getMessage()} ({count} times so far)", ()
        record.exc_info = record.exc_text = None
        return True

    def repeated(self) -> list[tuple[int, str]]:
        """For each kind with more than one record: how many there were, and the text of the
        first.
        """
        return [(count, said) for count, said in self._counts.values() if count > 1]


class _OneTraceback(OneOfEach):
    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info or super().filter(record)


@contextmanager
def one_traceback_of_each() -> Iterator[None]:
    """While open, log one traceback for each error_id: for a program with handlers of its own.

    A handler with `OneOfEach` would not count the repeats.
    """
    once = _OneTraceback()
    loggers = [logging.getLogger(name) for name in _WITH_TRACEBACKS]
    for one in loggers:
        one.addFilter(once)
    try:
        yield
    finally:
        for one in loggers:
            one.removeFilter(once)


def _kind(record: logging.LogRecord) -> Any:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return record.name, record.getMessage()
    places: list[tuple[type, str, int]] = []
    at: BaseException | None = error
    while at is not None and len(places) < 200:
        places += [
            (type(at), frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(at.__traceback__)
        ]
        at = at.__cause__
    return record.name, type(error), tuple(places)
