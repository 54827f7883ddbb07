"""The registry's state machine: whatever is done to it in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.registry_view import (
    DEFAULT_LEASE_S,
    LONGEST_LEASE_S,
    SHORTEST_LEASE_S,
    Change,
    Instance,
    InstanceExistsError,
    LeaseNotFoundError,
    RegistryView,
    matches,
)

IDS = st.sampled_from(["a", "b", "c"])
SERVICES = st.sampled_from(["x.Model", "x.Agent"])
NAMES = st.sampled_from(["policy", "judge"])
HEALTHS = st.sampled_from(list(discovery_pb2.Health.values()))


def make(
    instance_id: str, service: str = "x.Model", name: str = "policy", port: int = 1
) -> Instance:
    return Instance(id=instance_id, service=service, name=name, address=f"127.0.0.1:{port}")


class RegistryMachine(RuleBasedStateMachine):
    """Beside the view, a model of it: who holds which lease until when, as plain dicts."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.view = RegistryView()
        self.now = 0.0
        self.count = 0
        self.holders: dict[str, tuple[str, float, int]] = {}  # id -> lease, end, length
        self.replayed: dict[str, Instance] = {}
        self.sent_copies: list[tuple[Instance, bytes]] = []

    def _saw(self, change: Change | None) -> None:
        if change is None:
            return
        assert change.version == self.view.version
        self._replay(change)

    def _replay(self, change: Change) -> None:
        key = change.instance.id
        assert change.before == self.replayed.get(key)
        if change.removed:
            del self.replayed[key]
        else:
            self.replayed[key] = change.instance
        # A change that was handed out must never be altered afterwards.
        self.sent_copies.append((change.instance, change.instance.SerializeToString()))

    @rule(target=leases, instance_id=IDS, service=SERVICES, name=NAMES, asked=st.integers(0, 999))
    def register(self, instance_id: str, service: str, name: str, asked: int) -> object:
        self.count += 1
        lease = f"lease-{self.count}"
        instance = make(instance_id, service, name, port=self.count)  # elsewhere
        version = self.view.version
        if instance_id in self.holders:
            with pytest.raises(InstanceExistsError):
                self.view.register(instance, lease, asked, self.now)
            with pytest.raises(InstanceExistsError):
                self.view.register(instance, lease, asked, self.now, held_lease="guessed")
            assert self.view.version == version
            return multiple()
        length, change = self.view.register(instance, lease, asked, self.now, held_lease="old")
        assert length == min(max(asked or DEFAULT_LEASE_S, SHORTEST_LEASE_S), LONGEST_LEASE_S)
        assert instance.health == discovery_pb2.HEALTH_UNSPECIFIED  # the request's own
        self.holders[instance_id] = (lease, self.now + length, length)
        self._saw(change)
        return lease

    @rule(target=leases, lease=consumes(leases), service=SERVICES, name=NAMES)
    def replace(self, lease: str, service: str, name: str) -> object:
        held = [key for key, one in self.holders.items() if one[0] == lease]
        if not held:
            return lease
        self.count += 1
        fresh = f"lease-{self.count}"
        instance = make(held[0], service, name)
        length, change = self.view.register(instance, fresh, 9, self.now, held_lease=lease)
        self.holders[held[0]] = (fresh, self.now + length, length)
        self._saw(change)
        with pytest.raises(LeaseNotFoundError):
            self.view.renew(lease, discovery_pb2.HEALTH_SERVING, self.now)
        return fresh

    @rule(target=leases, lease=consumes(leases))
    def start_again(self, lease: str) -> object:
        """The same service at the same address, which knows nothing of its past lease."""
        held = [key for key, one in self.holders.items() if one[0] == lease]
        if not held:
            return lease
        self.count += 1
        fresh = f"lease-{self.count}"
        instance = Instance()
        instance.CopyFrom(self.replayed[held[0]])
        length, change = self.view.register(instance, fresh, 9, self.now)
        self.holders[held[0]] = (fresh, self.now + length, length)
        self._saw(change)
        with pytest.raises(LeaseNotFoundError):
            self.view.renew(lease, discovery_pb2.HEALTH_SERVING, self.now)
        return fresh

    @rule(lease=leases, health=HEALTHS)
    def renew(self, lease: str, health: discovery_pb2.Health.ValueType) -> None:
        held = [key for key, one in self.holders.items() if one[0] == lease]
        if not held:
            with pytest.raises(LeaseNotFoundError):
                self.view.renew(lease, health, self.now)
            return
        length, change = self.view.renew(lease, health, self.now)
        assert length == self.holders[held[0]][2]
        different = bool(health) and self.replayed[held[0]].health != health
        assert (change is not None) == different
        self.holders[held[0]] = (lease, self.now + length, length)
        self._saw(change)

    @rule(lease=leases)
    def deregister(self, lease: str) -> None:
        held = [key for key, one in self.holders.items() if one[0] == lease]
        change = self.view.deregister(lease)
        assert (change is not None) == bool(held)
        for key in held:
            del self.holders[key]
        self._saw(change)
        assert self.view.deregister(lease) is None

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        version = self.view.version
        changes = self.view.expire(self.now)
        dead = {key for key, one in self.holders.items() if one[1] <= self.now}
        assert {change.instance.id for change in changes} == dead
        assert all(change.removed for change in changes)
        assert [change.version for change in changes] == [
            version + 1 + index for index in range(len(changes))
        ]
        for change in changes:
            self._replay(change)
        for key in dead:
            del self.holders[key]

    @invariant()
    def lists_exactly_who_holds_a_lease(self) -> None:
        assert [one.id for one in self.view.instances()] == sorted(self.holders)

    @invariant()
    def changes_replay_to_the_same_state(self) -> None:
        assert self.view.instances() == [self.replayed[key] for key in sorted(self.replayed)]

    @invariant()
    def filters_are_what_matches_says(self) -> None:
        wanted = [one for one in self.view.instances() if matches(one, "x.Model", "judge")]
        assert self.view.instances("x.Model", "judge") == wanted

    @invariant()
    def what_was_handed_out_stays_as_it_was(self) -> None:
        assert all(one.SerializeToString() == was for one, was in self.sent_copies)


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_instance_without_health_is_listed_as_serving() -> None:
    view = RegistryView()
    view.register(make("a"), "l", 0, 0.0)
    (listed,) = view.instances()
    assert listed.health == discovery_pb2.HEALTH_SERVING


@pytest.mark.parametrize(
    ("service", "name", "found"),
    [("", "", True), ("s", "", True), ("", "n", True), ("s", "n", True), ("t", "n", False)],
)
def test_empty_filters_match_all(service: str, name: str, found: bool) -> None:
    assert matches(Instance(id="i", service="s", name="n"), service, name) is found
