"""What a process reports while it runs: logs, stalls of its event loop, traces, metrics.

logs             how log lines are written
log_limit        one line in place of many
current_rollout  the rollout that a log line belongs to
stalls           times at which code blocked the event loop
tracing          spans, by OpenTelemetry
instruments      counters, gauges and histograms; gymmesh_runtime/metrics.py declares them

Import stalls, tracing and instruments from their own files: `gym-cli --help` must not wait for the
libraries that they need.
"""

from gymmesh_runtime.telemetry.current_rollout import RolloutRef, current_rollout, for_rollout
from gymmesh_runtime.telemetry.log_limit import LogLimit
from gymmesh_runtime.telemetry.logs import (
    Concealing,
    LogFormat,
    OneOfEach,
    formatter,
    name_process,
    one_traceback_of_each,
)

__all__ = [
    "Concealing",
    "LogFormat",
    "LogLimit",
    "OneOfEach",
    "RolloutRef",
    "current_rollout",
    "for_rollout",
    "formatter",
    "name_process",
    "one_traceback_of_each",
]
