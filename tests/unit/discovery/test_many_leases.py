"""What many leases cost: a renewal does not look at all of them."""

from __future__ import annotations

from typing import Any

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.registry_view import Instance, RegistryView


class Counting(dict[str, Any]):
    """A dict that counts how often all of its values are looked at."""

    looks = 0

    def values(self) -> Any:
        self.looks += 1
        return super().values()


def test_leases_are_looked_at_when_one_may_have_run_out() -> None:
    view = RegistryView(_by_lease=Counting())
    for number in range(50):
        view.register(Instance(id=f"i-{number}", service="s", name="n"), f"l-{number}", 15, 0.0)
    leases = view._by_lease
    assert isinstance(leases, Counting)
    for turn in range(300):  # for a minute, each renewed every 5 s
        now = turn / 5
        assert view.expire(now) == []
        for number in range(turn % 25, 50, 25):
            view.renew(f"l-{number}", discovery_pb2.HEALTH_SERVING, now)
    # After a look at 15 s, none can run out before 25 s, and so on.
    assert leases.looks <= 2 * (60 // 10)
    assert [one.instance.id for one in view.expire(75.0)] == [f"i-{n}" for n in range(50)]
