"""What the process has logged, as tests judge it."""

from __future__ import annotations

import logging
from collections.abc import Iterable


def without_other_loops(records: Iterable[logging.LogRecord]) -> list[logging.LogRecord]:
    """These records, but for gRPC's own about the event loop of an earlier test.

    grpcio hears of all connections of a process in one place. An event of a connection whose loop
    has been closed is logged as an error with a traceback, in whichever test runs by then.
    """
    return [record for record in records if "PollerCompletionQueue" not in record.getMessage()]
