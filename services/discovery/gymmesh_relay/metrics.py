"""The metrics of a relay. Its calls are counted like the calls of every server."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge

RELAY_INSTANCES: Final = gauge(
    "gymmesh_relay_instances",
    "Instances offered at this relay, by state (connected, disconnected, leaving).",
    "state",
)
RELAY_OFFERS: Final = counter(
    "gymmesh_relay_offers_total",
    "Accepted offers of instances, by kind: new, or again (after a reconnection, or with other "
    "meta).",
    "kind",
)
RELAY_EXPIRED: Final = counter(
    "gymmesh_relay_expired_total",
    "Instances that the relay deregistered because they did not connect again in time.",
)
RELAY_WAITING: Final = gauge(
    "gymmesh_relay_waiting", "Calls that wait at the relay until their instance is connected."
)
