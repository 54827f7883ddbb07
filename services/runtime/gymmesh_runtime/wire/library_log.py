"""What gRPC's own log says that is no news."""

from __future__ import annotations

import asyncio
import logging


def quiet_cancellations() -> None:
    """Keeps out of the log the tracebacks of calls that were cancelled as their server stopped.

    gRPC writes each as an error that nobody handled. Errors of any other kind stay in the log.
    """
    # A second call adds nothing: a logger takes each filter once.
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
