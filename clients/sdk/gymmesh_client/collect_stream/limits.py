"""The bounds of a Collect stream."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of a stream.

    Attributes:
        credit: the most events on their way from the agent.
        hello_s: seconds within which an agent must answer hello.
        silence_s: seconds without a message, while attempts are in flight, after which the
            connection is taken for dead.
        reconnect_s: seconds after which a lost agent is given up, and all in flight with it.
        backoff_s: the first wait before connecting again; it doubles up to `backoff_cap_s`.
        backoff_cap_s: the longest of these waits.
        acknowledge_s: seconds for which an acknowledgement waits for others.
        flush_s: the longest that a start waits for others, in seconds; less when fewer than some
            hundred attempts are in flight.
    """

    credit: int = 8192
    hello_s: float = 10.0
    silence_s: float = 45.0
    reconnect_s: float = 30.0
    backoff_s: float = 0.1
    backoff_cap_s: float = 2.0
    acknowledge_s: float = 0.1
    flush_s: float = 0.02
