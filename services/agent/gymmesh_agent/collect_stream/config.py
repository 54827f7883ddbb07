"""The configuration of Collect."""

from __future__ import annotations

import math

import msgspec


class CollectConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent serves collectors; `collect:` of an agent's configuration.

    Attributes:
        capacity: the most attempts side by side, over all collectors.
        queue: the most starts of one collector that wait; more are refused (QUEUE_FULL).
        resume_window_s: seconds for which rollouts go on, and their events are kept, after a
            collector's connection is lost.
        buffer_mb: MiB of events of one collector that are kept until it has stored them; its
            rollouts wait beyond that.
        flush_ms: the longest that an event waits for others to leave with, in milliseconds; one
            that ends an attempt waits less when fewer than some hundred run.

    Raises:
        ValueError: a value that cannot be meant; the sentence names the key.
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
