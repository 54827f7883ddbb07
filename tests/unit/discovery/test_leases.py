"""Leases that run out are counted, whatever registry gave them."""

from __future__ import annotations

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends.leases import Leases
from gymmesh_discovery.view import Change
from gymmesh_runtime import metrics


def test_leases_that_run_out_are_counted_and_others_are_not() -> None:
    now = 0.0
    ended: list[str] = []

    def deliver(change: Change) -> None:
        if change.removed:
            ended.append(change.instance.id)

    leases = Leases(lambda: now, deliver)
    for name in ("a", "b", "c"):
        leases.register(pb.Instance(id=name, service="x.Agent", address="h:1"), 10, "")
    renewed, _ = leases.register(pb.Instance(id="d", service="x.Agent", address="h:2"), 10, "")
    gone, _ = leases.register(pb.Instance(id="e", service="x.Agent", address="h:3"), 10, "")
    counted = metrics.REGISTRY_EXPIRED.labels()
    before = counted.value
    now = 9.0
    leases.renew(renewed, pb.HEALTH_SERVING)
    leases.deregister(gone)
    leases.sweep()
    assert ended == ["e"]
    now = 15.0
    leases.sweep()
    leases.sweep()
    assert ended == ["e", "a", "b", "c"]
    assert counted.value == before + 3
