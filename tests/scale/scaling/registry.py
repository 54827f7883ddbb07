"""What a registry that was started anew has to do, in steps of time. Deterministic.

It lists nobody: every instance registers again, each registration is a change that every watcher
is sent, and every watcher comes back for a snapshot. One process does it all, one thing after
another. A watcher that is behind by more changes than its queue holds is sent a snapshot instead.
Callers give up after a while and come again, so a registry that is too slow never catches up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.scale.scaling.fits import RegistryCosts

_STEP_S: Final = 0.05
#: Within which all that lost their connection come again (`gymmesh_runtime.serving.registration`).
BACK_S: Final = 2.0
#: After which a call is given up.
CALL_S: Final = 5.0
#: Changes that wait for a watcher (`gymmesh_discovery.backends.watchers`).
QUEUE: Final = 1024
#: Longer is not looked at.
LONGEST_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Restart:
    """How a restart went.

    Attributes:
        seconds: until everybody is registered and has everything; None: not within LONGEST_S.
        given_up: calls that waited too long, and were made again.
        sent_gb: what watchers were sent, GB of 1e9 bytes.
    """

    seconds: float | None
    given_up: float
    sent_gb: float


def restart(costs: RegistryCosts, instances: int, watchers: int) -> Restart:
    """A registry of so many instances and watchers is started anew."""
    waiting: list[tuple[float, float]] = []  # registrations: since when, how many
    listed = given_up = sent_bytes = 0.0
    snapshots = behind = 0.0  # watchers without a snapshot; changes each of the others lacks
    now = 0.0
    again: list[tuple[float, float]] = []  # those who gave up: when they come, how many
    while now < LONGEST_S:
        if now < BACK_S:
            share = min(1.0, _STEP_S / BACK_S)
            waiting.append((now, instances * share))
            snapshots += watchers * share
        waiting += [(now, count) for when, count in again if when <= now]
        again = [one for one in again if one[0] > now]
        late = sum(count for since, count in waiting if now - since > CALL_S)
        if late:
            given_up += late
            waiting = [one for one in waiting if now - one[0] <= CALL_S]
            again.append((now + BACK_S, late))
        # Calls and watchers take turns; what one does not need the other has.
        budget = _STEP_S * 1e6
        told = _sent(costs, listed, watchers, snapshots, behind)
        for_calls = budget / 2 if told else budget
        done, spent = _answer(waiting, for_calls, costs.change_us(listed, 0))
        listed += done
        behind += done
        if behind > QUEUE:  # all of them look at everything again
            snapshots, behind = float(watchers), 0.0
        budget -= spent
        cost = costs.snapshot_us(listed)
        few = min(snapshots, budget / cost)
        snapshots -= few
        budget -= few * cost
        sent_bytes += few * listed * costs.instance_bytes
        per_change = watchers * costs.change[2]
        most = budget / per_change if per_change else behind
        few = min(behind, most)
        behind -= few
        sent_bytes += few * watchers * costs.instance_bytes
        now += _STEP_S
        left = snapshots + behind + sum(count for _, count in waiting + again)
        if now >= BACK_S and left < 0.5:
            return Restart(now, given_up, sent_bytes / 1e9)
    return Restart(None, given_up, sent_bytes / 1e9)


def _sent(
    costs: RegistryCosts, listed: float, watchers: int, snapshots: float, behind: float
) -> float:
    return snapshots * costs.snapshot_us(listed) + behind * watchers * costs.change[2]


def _answer(waiting: list[tuple[float, float]], budget: float, cost: float) -> tuple[float, float]:
    """Answer the oldest calls; how many, and what of the budget it took."""
    done = 0.0
    while waiting and budget - done * cost > 1e-9:
        since, count = waiting[0]
        few = min(count, budget / cost - done)
        done += few
        if few < count:
            waiting[0] = (since, count - few)
            break
        waiting.pop(0)
    return done, done * cost
