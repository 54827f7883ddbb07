"""How metrics are declared, the registry of metrics, and the runtime's own metrics.

Each room declares its metrics in its module `metrics`. Dashboards, alerts and the tests of the
documentation collect all of them, see deploy/observe/families.py.

Names and units follow OpenMetrics' conventions. Labels have few values: names of services,
environments, tools and methods, never ids. A rollout's id is only in exemplars, see instruments.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from gymmesh_runtime.telemetry.instruments import Counter, Gauge, Histogram

REGISTRY: Final = CollectorRegistry(auto_describe=True)
# CPU time, memory and open files of the process, under the library's own names (process_…).
ProcessCollector(registry=REGISTRY)

_SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
    300, 600,
)  # fmt: skip


def counter(name: str, about: str, labels: str = "") -> Counter:
    """Declares a number that only grows. labels: one text, with a blank between two labels."""
    return Counter(name, about, labels.split(), REGISTRY)


def gauge(name: str, about: str, labels: str = "") -> Gauge:
    """Declares a number that goes up and down. labels: one text, with a blank between two
    labels.
    """
    return Gauge(name, about, labels.split(), REGISTRY)


def histogram(
    name: str, about: str, labels: str = "", buckets: Sequence[float] = _SECONDS
) -> Histogram:
    """Declares a distribution. labels: one text, with a blank between two labels. buckets: their
    upper bounds.
    """
    return Histogram(name, about, labels.split(), REGISTRY, buckets)


RPCS: Final = counter(
    "gymmesh_rpcs_total",
    "Calls served, by method and status code, on every path (direct, mux, gRPC).",
    "method code",
)
RPC_SECONDS: Final = histogram(
    "gymmesh_rpc_seconds", "Time from a call's arrival to its end, in seconds.", "method"
)
CERTIFICATE_BEGINS: Final = gauge(
    "gymmesh_certificate_not_before_timestamp_seconds",
    "Unix time at which the certificate in use becomes valid, by file: certificate or authority "
    "(if the file has several authorities, the authority that expires last).",
    "file",
)
CERTIFICATE_ENDS: Final = gauge(
    "gymmesh_certificate_not_after_timestamp_seconds",
    "Unix time at which the certificate in use expires, by file: certificate or authority "
    "(if the file has several authorities, the authority that expires last).",
    "file",
)
EVENT_LOOP_LAG_SECONDS: Final = gauge(
    "gymmesh_event_loop_lag_seconds", "Delay of the event loop's last heartbeat, in seconds."
)
MUX_STREAMS: Final = gauge(
    "gymmesh_mux_streams",
    "Open mux streams, by the side of this process (client, server).",
    "side",
)
MUX_BROKEN: Final = counter(
    "gymmesh_mux_broken_total", "Mux streams that broke before their end, by side.", "side"
)
MUX_BATCHES: Final = counter(
    "gymmesh_mux_batches_total", "Batches of frames sent over mux streams, by side.", "side"
)
MUX_FRAMES: Final = counter(
    "gymmesh_mux_frames_total",
    "Frames sent over mux streams, by side. Frames per batch show how well batching works.",
    "side",
)
