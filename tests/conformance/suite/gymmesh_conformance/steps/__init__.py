"""What a step of a case can do beside a plain call: raw bytes, a collector's talk, a watch."""

from __future__ import annotations

from gymmesh_conformance.steps.probes import HealthWatch, WirePath, check_health, send_raw
from gymmesh_conformance.steps.talks import Collected, Talk
from gymmesh_conformance.steps.watches import WATCH_WORDS, Watches

__all__ = [
    "WATCH_WORDS",
    "Collected",
    "HealthWatch",
    "Talk",
    "Watches",
    "WirePath",
    "check_health",
    "send_raw",
]
