"""The catalog follows its registry, whatever happens to the subscription."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery.backends import watchers
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.registry_view import Change
from gymmesh_discovery.xds import feed as module
from gymmesh_discovery.xds.feed import RegistryFeed
from tests.unit.runtime.probe import until


def instance(number: int) -> pb.Instance:
    return pb.Instance(
        id=f"i-{number}", service="gymmesh.agent.v1.AgentService", name=f"n-{number}",
        address=f"127.0.0.1:{number + 1}",
    )  # fmt: skip


class Flaky(MemoryRegistry):
    """A registry whose subscriptions break, and once its snapshot, too."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks = 0
        self.snapshots = 0

    def subscribe(self) -> Any:
        subscription = super().subscribe()
        following = subscription.next

        async def next_or_break() -> Change | None:
            change = await following()
            if self.breaks:
                self.breaks -= 1
                raise ConnectionError("lost")
            return change

        subscription.next = next_or_break  # type: ignore[method-assign]
        return subscription

    def snapshot(self, service: str, name: str) -> tuple[int, list[pb.Instance]]:
        self.snapshots += 1
        if self.snapshots == 2:
            raise ConnectionError("away")
        return super().snapshot(service, name)


async def test_a_subscription_that_breaks_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    registry = Flaky()
    feed = RegistryFeed(registry, settle_s=0.0)
    await feed.open()
    try:
        registry.breaks = 1
        with caplog.at_level(logging.CRITICAL, "gymmesh.xds"):
            for number in range(20):
                await registry.register(instance(number), 60, "")
                await asyncio.sleep(0.01)
            await until(
                lambda: all(feed.catalog.has_endpoints(f"agent.n-{one}") for one in range(20))
            )
        assert registry.snapshots > 2
        assert len(registry._watchers) == 1
    finally:
        await feed.close()
    assert not registry._watchers


async def test_missed_changes_are_made_good_by_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "_QUEUE", 4)
    registry = MemoryRegistry()
    feed = RegistryFeed(registry, settle_s=0.0)
    await feed.open()
    try:
        leases = []
        for number in range(50):  # without a turn for the feed between
            leases.append((await registry.register(instance(number), 60, ""))[0])
        for lease in leases[:25]:
            await registry.deregister(lease)
        await until(
            lambda: (
                [feed.catalog.has_endpoints(f"agent.n-{one}") for one in range(50)]
                == [False] * 25 + [True] * 25
            )
        )
    finally:
        await feed.close()
