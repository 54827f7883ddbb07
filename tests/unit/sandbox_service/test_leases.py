"""What leases allow, over random histories."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.leases import MOST_LEASES, Lease, Leases, Right, Scope

_MAX_TTL_S = 100.0
_LIFE_S = 250.0
_PATHS = (b"/", b"/a", b"/a/b", b"/ab", b"/a/b/c")
_USERS = ("", "u", "v")

_scopes = st.builds(
    Scope,
    read_only=st.booleans(),
    folder=st.sampled_from((b"", b"/", b"/a", b"/a/b", b"/ab")),
    user=st.sampled_from(_USERS),
)


@dataclass(frozen=True)
class Step:
    """What happens to the lease number `which` of those that were given."""

    name: Literal["lend", "renew", "revoke", "pass"]
    which: int
    scope: Scope
    seconds: int


_steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(("lend", "lend", "lend", "renew", "revoke", "pass")),
        st.integers(0, 20),
        _scopes,
        st.integers(0, 150),
    ),
    max_size=40,
)


def _leases(now: float = 0.0) -> Leases:
    return Leases("b-1", ttl_s=60, max_ttl_s=_MAX_TTL_S, ends=now + _LIFE_S, now=now)


class History:
    """What happened to the leases of a sandbox."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leases = _leases()
        self.given: list[tuple[bytes, Lease]] = [(self.leases.own_secret, self.leases.own)]
        self.parents: dict[bytes, bytes] = {}
        self.revoked: set[bytes] = set()

    def take(self, step: Step) -> None:
        secret, lease = self.given[step.which % len(self.given)]
        if step.name == "pass":
            self.now += step.seconds / 3
        elif step.name == "revoke":
            if secret != self.leases.own_secret:
                self.leases.revoke(secret)
                self.revoked.add(secret)
        elif Right.ANY not in {right for right, *_ in self.allowed(secret)}:
            return
        elif step.name == "renew":
            before = lease.expires
            self.leases.renew(lease, step.seconds, self.now)
            assert before <= lease.expires <= max(before, self.now + _MAX_TTL_S)
        else:
            with suppress(MeshError):  # it is wider
                made = self.leases.lend(lease, step.scope, step.seconds, self.now)
                self.given.append(made)
                self.parents[made[0]] = secret

    def allowed(self, secret: bytes) -> set[tuple[Right, str, bytes]]:
        """All that a secret allows now: rights, users and paths; the path empty for none."""
        found = set()
        for right, user in product(Right, _USERS):
            with suppress(MeshError):
                lease = self.leases.check(secret, right, self.now, user=user)
                found.add((right, user, b""))
                for path in _PATHS:
                    with suppress(MeshError):
                        self.leases.check_path(lease, path)
                        found.add((right, user, path))
        return found

    def check(self) -> None:
        by_secret = dict(self.given)
        for secret, parent in self.parents.items():
            allowed = self.allowed(secret)
            assert allowed <= self.allowed(parent)
            assert Right.OWN not in {right for right, *_ in allowed}
            assert by_secret[secret].expires <= by_secret[parent].expires <= _LIFE_S
            if secret in self.revoked:
                assert not allowed


@given(_steps)
def test_no_lease_allows_more_or_lasts_longer_than_the_one_it_was_made_of(
    steps: list[Step],
) -> None:
    history = History()
    for step in steps:
        history.take(step)
        history.check()


def test_a_lease_that_ran_out_is_told_from_one_that_never_was() -> None:
    leases = _leases()
    secret, _ = leases.lend(leases.own, Scope(), 5, 0.0)
    assert _refusal(leases, secret, 5.0) == errors_pb2.ERROR_REASON_SANDBOX_LEASE_EXPIRED
    assert _refusal(leases, b"guess", 5.0) == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
    assert _refusal(leases, b"", 5.0) == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID
    leases.revoke(secret)
    assert _refusal(leases, secret, 5.0) == errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID


def _refusal(leases: Leases, secret: bytes, now: float) -> int:
    with pytest.raises(MeshError) as refused:
        leases.check(secret, Right.ANY, now)
    return int(refused.value.reason)


@pytest.mark.parametrize(
    ("scope", "rights"),
    [
        (Scope(), {Right.ANY, Right.READ, Right.FILES, Right.PROGRAMS}),
        (Scope(read_only=True), {Right.ANY, Right.READ}),
        (Scope(folder=b"/a"), {Right.ANY, Right.READ, Right.FILES}),
        (Scope(user="u"), {Right.ANY, Right.READ, Right.FILES, Right.PROGRAMS}),
    ],
)
def test_what_a_scope_leaves(scope: Scope, rights: set[Right]) -> None:
    assert {right for right in Right if scope.allows(right)} == rights


def test_a_folder_whose_name_begins_alike_is_another_one() -> None:
    scope = Scope(folder=b"/work")
    assert scope.contains(b"/work")
    assert scope.contains(b"/work/a")
    assert not scope.contains(b"/workshop")
    assert Scope(folder=b"/").contains(b"/anything")


def test_renewing_with_nothing_said_lasts_as_long_as_at_first() -> None:
    leases = _leases()
    leases.renew(leases.own, 0, 10.0)
    assert leases.own.expires == 70.0
    leases.renew(leases.own, 1, 20.0)  # never shorter
    assert leases.own.expires == 70.0


def test_the_number_of_leases_is_bounded() -> None:
    leases = _leases()
    for _ in range(MOST_LEASES - 1):
        leases.lend(leases.own, Scope(), 5, 0.0)
    with pytest.raises(MeshError) as refused:
        leases.lend(leases.own, Scope(), 5, 0.0)
    assert refused.value.reason == errors_pb2.ERROR_REASON_SANDBOX_LIMIT


def test_no_secret_is_kept() -> None:
    leases = _leases()
    secret, lease = leases.lend(leases.own, Scope(), 5, 0.0)
    assert secret not in (lease.digest, *leases._by_digest)
