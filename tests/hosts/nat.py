"""A host behind NAT: it reaches the others through a router, and none of them reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tests.chaos.processes import run_quietly
from tests.hosts.network import Host, must

_NET: Final = "192.168.79"


@dataclass(frozen=True)
class HostBehindNat:
    """A network namespace whose only way out is a router that translates its address."""

    namespace: str
    address: str
    router: Host

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command line begins with to run there."""
        return ("ip", "netns", "exec", self.namespace)

    async def cut_off(self) -> None:
        """Nothing passes, and nobody is told."""
        await self._router("ip", "link", "set", "inside", "down")

    async def reconnect(self) -> None:
        """The wire is whole again."""
        await self._router("ip", "link", "set", "inside", "up")

    async def reset(self, port: int) -> None:
        """From now on each packet of connections to this port is answered with a reset."""
        for option in ("--dport", "--sport"):
            await self._router(*_rejecting("-I", option, port))

    async def allow(self, port: int) -> None:
        """No more resets."""
        for option in ("--dport", "--sport"):
            await self._router(*_rejecting("-D", option, port))

    async def _router(self, *command: str) -> None:
        await must(*self.router.prefix, *command)


def _rejecting(what: str, option: str, port: int) -> tuple[str, ...]:
    tcp = ("-p", "tcp", option, str(port))
    return ("iptables", what, "FORWARD", *tcp, "-j", "REJECT", "--reject-with", "tcp-reset")


@asynccontextmanager
async def behind_nat(router: Host) -> AsyncIterator[HostBehindNat]:
    """A host behind this router; gone at the end.

    Raises OSError, in a sentence, where it cannot be had.
    """
    host = HostBehindNat(f"{router.namespace}-in", f"{_NET}.2", router)
    outside, inside = router.prefix, host.prefix
    try:
        await must("ip", "netns", "add", host.namespace)
        await must(
            "ip", "link", "add", "inside", "netns", router.namespace, "type", "veth",
            "peer", "name", "eth0", "netns", host.namespace,
        )  # fmt: skip
        await must(*outside, "ip", "addr", "add", f"{_NET}.1/24", "dev", "inside")
        await must(*outside, "ip", "link", "set", "inside", "up")
        await must(*inside, "ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
        await must(*inside, "ip", "link", "set", "eth0", "up")
        await must(*inside, "ip", "link", "set", "lo", "up")
        await must(*inside, "ip", "route", "add", "default", "via", f"{_NET}.1")
        await must(*outside, "sysctl", "-w", "net.ipv4.ip_forward=1")
        await must(
            *outside, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth0",
            "-j", "MASQUERADE",
        )  # fmt: skip
        # Out: everything. In: only what answers it.
        forward = (*outside, "iptables", "-A", "FORWARD")
        await must(*forward, "-i", "inside", "-j", "ACCEPT")
        await must(*forward, "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT")
        await must(*outside, "iptables", "-P", "FORWARD", "DROP")
        yield host
    finally:
        await run_quietly("ip", "netns", "del", host.namespace)
