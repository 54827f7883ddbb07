"""The leases of one sandbox: what each permits, and until when. Pure: callers pass the time.

Invariants, for any history of calls: a lease permits no more than the lease from which it was
derived, and does not outlive it. A revoked lease, and all leases derived from it, permit nothing.

Only the SHA-256 of a lease is stored.
"""

from __future__ import annotations

import enum
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.errors import lease_expired, lease_invalid, sandbox_limit

_LEASE_BYTES: Final = 32
#: The most leases of one sandbox, expired ones included: those are remembered as long as it lives.
MOST_LEASES: Final = 10_000


class Right(enum.Enum):
    """What a call needs, as the table in sandbox.proto has it."""

    ANY = "using the sandbox"
    READ = "reading files"
    FILES = "writing files"
    PROGRAMS = "running programs"
    OWN = "ending, snapshotting or forking the sandbox"


@dataclass(frozen=True, slots=True)
class Scope:
    """The restrictions of a lease.

    Attributes:
        read_only: the lease permits only reading files.
        folder: the absolute path, without links, of the only folder that the lease permits; empty:
            all.
        user: the only user as which programs run and files are used; empty: any user.
    """

    read_only: bool = False
    folder: bytes = b""
    user: str = ""

    def allows(self, right: Right) -> bool:
        """Whether an operate lease of this scope has a right."""
        if right is Right.PROGRAMS:
            return not (self.read_only or self.folder)
        if right is Right.FILES:
            return not self.read_only
        return right is not Right.OWN

    def contains(self, path: bytes) -> bool:
        """Whether an absolute path without links lies in the folder."""
        folder = self.folder.rstrip(b"/")
        return path == folder or path.startswith(folder + b"/")

    def narrowed(self, asked: Scope) -> Scope | None:
        """This scope and `asked` together; None if `asked` permits more than this scope."""
        if self.folder and asked.folder and not self.contains(asked.folder):
            return None
        if self.user and asked.user not in ("", self.user):
            return None
        return Scope(
            read_only=self.read_only or asked.read_only,
            folder=asked.folder or self.folder,
            user=asked.user or self.user,
        )

    def message(self) -> sandbox_pb2.LeaseScope:
        """The contract's message."""
        folder = self.folder.decode("utf-8", "replace")
        return sandbox_pb2.LeaseScope(read_only=self.read_only, folder=folder, user=self.user)


@dataclass(slots=True, eq=False)
class Lease:
    """A lease that was issued. Times are the clock's seconds.

    Attributes:
        own: whether the lease permits everything.
        scope: the restrictions of the lease.
        ttl_s: how long it was first issued for.
        expires: when it ends.
        parent: the lease from which it was derived.
        children: the leases derived from it, by their digests.
    """

    digest: bytes
    own: bool
    scope: Scope
    ttl_s: float
    expires: float
    parent: Lease | None = None
    children: dict[bytes, Lease] = field(default_factory=dict)


class Leases:
    """The leases of one sandbox.

    Args:
        sandbox_id: for the errors.
        max_ttl_s: the maximum time that a lease lasts after it was issued or renewed.
        ends: when the sandbox's lifetime is over; infinity: never.
        now: the current time.
        ttl_s: how long the own lease lasts.
    """

    def __init__(
        self, sandbox_id: str, *, ttl_s: float, max_ttl_s: float, ends: float, now: float
    ) -> None:
        self._sandbox_id = sandbox_id
        self._max_ttl_s = max_ttl_s
        self._ends = ends
        self._by_digest: dict[bytes, Lease] = {}
        #: The secret of the own lease, and the lease.
        self.own_secret, self.own = self._add(True, Scope(), ttl_s, None, now)

    def lend(self, parent: Lease, scope: Scope, ttl_s: float, now: float) -> tuple[bytes, Lease]:
        """Derives an operate lease from a checked lease; also returns its secret.

        Args:
            ttl_s: how long the lease lasts, at most as long as `parent`; 0: as long as `parent`.

        Raises SANDBOX_LEASE_INVALID for a wider scope, and SANDBOX_LIMIT.
        """
        narrowed = parent.scope.narrowed(scope)
        if narrowed is None:
            raise lease_invalid(
                self._sandbox_id,
                "permits less than the new lease that was requested. Request a lease with fewer "
                "rights",
            )
        if len(self._by_digest) >= MOST_LEASES:
            raise sandbox_limit(
                f"The sandbox already has {MOST_LEASES} leases, the maximum.", MOST_LEASES
            )
        return self._add(False, narrowed, ttl_s or parent.expires - now, parent, now)

    def check(self, secret: bytes, right: Right, now: float, *, user: str = "") -> Lease:
        """The lease of a secret, if the lease has the right now.

        Args:
            user: the user that the call names; empty: none.

        Raises SANDBOX_LEASE_INVALID and SANDBOX_LEASE_EXPIRED.
        """
        lease = self._by_digest.get(_digest(secret))
        if lease is None:
            raise lease_invalid(self._sandbox_id, "does not belong to this sandbox, or was revoked")
        if lease.expires <= now:
            raise lease_expired(self._sandbox_id)
        if not lease.own and not lease.scope.allows(right):
            raise lease_invalid(self._sandbox_id, f"does not permit {right.value}")
        if user and lease.scope.user and user != lease.scope.user:
            raise lease_invalid(self._sandbox_id, f"is only for the user {lease.scope.user!r}")
        return lease

    def check_path(self, lease: Lease, path: bytes) -> None:
        """Raises SANDBOX_LEASE_INVALID for a path, with all links followed, outside the lease's
        folder.
        """
        if lease.scope.folder and not lease.scope.contains(path):
            raise lease_invalid(
                self._sandbox_id, "does not permit paths outside the lease's folder"
            )

    def renew(self, lease: Lease, ttl_s: float, now: float) -> None:
        """Extends a checked lease by `ttl_s` from now; 0: by the time for which it was first
        issued.
        """
        lease.expires = max(lease.expires, self._until(ttl_s or lease.ttl_s, lease.parent, now))

    def revoke(self, secret: bytes) -> bool:
        """Ends a lease and all leases derived from it; does nothing if there is none.

        Returns whether it was the own lease, with which the sandbox ends.
        """
        lease = self._by_digest.get(_digest(secret))
        if lease is None:
            return False
        if lease.parent is not None:
            del lease.parent.children[lease.digest]
        gone = [lease]
        while gone:
            one = gone.pop()
            del self._by_digest[one.digest]
            gone += one.children.values()
        return lease.own

    def _add(
        self, own: bool, scope: Scope, ttl_s: float, parent: Lease | None, now: float
    ) -> tuple[bytes, Lease]:
        secret = secrets.token_bytes(_LEASE_BYTES)
        digest = _digest(secret)
        lease = Lease(digest, own, scope, ttl_s, self._until(ttl_s, parent, now), parent)
        self._by_digest[digest] = lease
        if parent is not None:
            parent.children[digest] = lease
        return secret, lease

    def _until(self, ttl_s: float, parent: Lease | None, now: float) -> float:
        until = min(now + min(ttl_s, self._max_ttl_s), self._ends)
        return until if parent is None else min(until, parent.expires)


def _digest(secret: bytes) -> bytes:
    # A look-up by digest says nothing about the secret by its time.
    return hashlib.sha256(secret).digest()
