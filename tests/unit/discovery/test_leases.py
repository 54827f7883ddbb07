"""Leases that run out are counted."""

from __future__ import annotations

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.registry_view import Change


async def test_leases_that_run_out_are_counted_and_others_are_not() -> None:
    now = 0.0
    ended: list[str] = []

    class Noting(MemoryRegistry):
        def _leased(self, change: Change) -> None:
            if change.removed:
                ended.append(change.instance.id)

    leases = Noting(lambda: now)
    for name in ("a", "b", "c"):
        await leases.register(pb.Instance(id=name, service="x.Agent", address="h:1"), 10, "")
    renewed, _ = await leases.register(
        pb.Instance(id="d", service="x.Agent", address="h:2"), 10, ""
    )
    gone, _ = await leases.register(pb.Instance(id="e", service="x.Agent", address="h:3"), 10, "")
    counted = metrics.REGISTRY_EXPIRED.labels()
    before = counted.value
    now = 9.0
    await leases.renew(renewed, pb.HEALTH_SERVING)
    await leases.deregister(gone)
    leases.sweep()
    assert ended == ["e"]
    now = 15.0
    leases.sweep()
    leases.sweep()
    assert ended == ["e", "a", "b", "c"]
    assert counted.value == before + 3
