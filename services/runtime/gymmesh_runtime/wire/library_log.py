"""Filters harmless records of gRPC's own log."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from grpc.aio import InternalError

# Of a batch that was begun; one that cannot be begun is a fault of this process.
_UNSENT: Final = 'Failed "execute_batch"'


def quiet() -> None:
    """Keeps out of the log the tracebacks of three things that are no errors of this process.

    Calls that were cancelled as their server stopped, each of which gRPC writes as an error that
    nobody handled; metadata that is not UTF-8, which any stranger can send, and which may hold
    a token; and answers whose connection was closed before they were sent, where gRPC learns of the
    closing last. Errors of any other kind stay in the log.
    """
    # A second call adds nothing: a logger takes each filter once.
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
    logging.getLogger("asyncio").addFilter(_is_not_grpcs)


def _is_not_grpcs(record: logging.LogRecord) -> bool:
    """Not of the task in which gRPC ends a server by a request's path: see listener.py."""
    error = record.exc_info[1] if record.exc_info else None
    where = error.__traceback__ if isinstance(error, UnicodeDecodeError) else None
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return where is None or where.tb_frame.f_code.co_name != "_server_main_loop"


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UnicodeDecodeError):
        return not record.msg.startswith("Invalid encoding on")
    if isinstance(error, InternalError):
        return not str(error).startswith(_UNSENT)
    return not isinstance(error, asyncio.CancelledError)
