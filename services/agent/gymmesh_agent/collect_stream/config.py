"""The configuration of Collect."""

from __future__ import annotations

import math

import msgspec


class CollectConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent serves collectors; `collect:` of an agent's configuration.

    Attributes:
        capacity: the maximum number of concurrent attempts, over all collectors.
        queue: the maximum number of waiting starts of one collector; further starts are refused
            (QUEUE_FULL).
        resume_window_s: seconds that rollouts continue, and their events are kept, after a
            collector's connection is lost.
        buffer_mb: MiB of events of one collector that the agent keeps until the collector has
            stored them. If the buffer is full, the collector's rollouts wait.
        flush_ms: the maximum time, in milliseconds, that an event waits to be sent together with
            others. If fewer than some hundred attempts run, an event that ends an attempt waits
            less.

    Raises:
        ValueError: an invalid value; the message names the key.
    """

    capacity: int = 16_384
    queue: int = 65_536
    resume_window_s: float = 60.0
    buffer_mb: float = 64.0
    flush_ms: float = 20.0

    def __post_init__(self) -> None:
        for key in ("capacity", "queue"):
            if getattr(self, key) < 1:
                raise ValueError(f"collect.{key}: must be at least 1, not {getattr(self, key)}")
        for key, least, most in (
            ("resume_window_s", 0.0, 86_400),
            ("buffer_mb", 0.001, 65_536),
            ("flush_ms", 0.0, 1000),
        ):
            value = getattr(self, key)
            if not (math.isfinite(value) and least <= value <= most):
                raise ValueError(
                    f"collect.{key}: must be a number from {least:g} to {most}, not {value}"
                )
