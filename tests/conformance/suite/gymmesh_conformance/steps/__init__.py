"""What a step can do beside a plain call: raw bytes, a collector's talk, a watch, sandboxes."""

from __future__ import annotations

from gymmesh_conformance.steps.probes import HealthWatch, WirePath, check_health, send_raw
from gymmesh_conformance.steps.sandboxes import CALL_S, CREATE, Sandboxes, gone, opening, unchanged
from gymmesh_conformance.steps.talks import Collected, Talk
from gymmesh_conformance.steps.watches import WATCH_WORDS, Watches

__all__ = [
    "CALL_S",
    "CREATE",
    "WATCH_WORDS",
    "Collected",
    "HealthWatch",
    "Sandboxes",
    "Talk",
    "Watches",
    "WirePath",
    "check_health",
    "gone",
    "opening",
    "send_raw",
    "unchanged",
]
