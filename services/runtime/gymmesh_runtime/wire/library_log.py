"""Filters harmless records of gRPC's own log."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from grpc.aio import InternalError

# Of a batch that was begun; one that cannot be begun is a fault of this process.
_UNSENT: Final = 'Failed "execute_batch"'


def quiet() -> None:
    """Keeps the tracebacks of three harmless events out of the log.

    - Calls that were cancelled when their server stopped. gRPC logs each as an error that nobody
      handled.
    - Metadata that is not UTF-8. Any stranger can send it, and it may contain a token.
    - Answers whose connection was closed before gRPC sent them.

    All other errors stay in the log.
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
