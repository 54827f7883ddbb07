"""Hosts with addresses of their own: network namespaces, each with a wire to one bridge."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.chaos.processes import is_root, run_quietly


@dataclass(frozen=True)
class Host:
    """A network namespace, its address, and the bridge's end of its wire."""

    namespace: str
    address: str
    wire: str

    @property
    def prefix(self) -> Sequence[str]:
        """What a command line begins with to run there."""
        return ("ip", "netns", "exec", self.namespace)

    async def cut_off(self) -> None:
        """Nothing reaches it nor leaves it, and nobody is told."""
        await must("ip", "link", "set", self.wire, "down")

    async def reconnect(self) -> None:
        """Its wire is whole again."""
        await must("ip", "link", "set", self.wire, "up")


@asynccontextmanager
async def network(count: int) -> AsyncIterator[Sequence[Host]]:
    """So many hosts that reach one another, and that this process reaches; gone at the end.

    Raises OSError, in a sentence, where they cannot be had.
    """
    if not is_root():
        raise OSError("network namespaces need root")
    if shutil.which("ip") is None:
        raise OSError("there is no `ip`: install iproute2")
    number = os.getpid()
    bridge, net = f"gmb{number}", f"10.79.{number % 250}"
    hosts = [
        Host(f"gymmesh{number}-{place}", f"{net}.{place}", f"gm{number}-{place}")
        for place in range(1, count + 1)
    ]
    try:
        await must("ip", "link", "add", bridge, "type", "bridge")
        await must("ip", "addr", "add", f"{net}.254/24", "dev", bridge)
        await must("ip", "link", "set", bridge, "up")
        for host in hosts:
            await _add(host, bridge)
        yield hosts
    finally:
        for host in hosts:
            await run_quietly("ip", "link", "del", host.wire)
            await run_quietly("ip", "netns", "del", host.namespace)
        await run_quietly("ip", "link", "del", bridge)


async def _add(host: Host, bridge: str) -> None:
    inside = ("ip", "-n", host.namespace)
    await must("ip", "netns", "add", host.namespace)
    await must(
        "ip", "link", "add", host.wire, "type", "veth", "peer", "name", "eth0",
        "netns", host.namespace,
    )  # fmt: skip
    await must("ip", "link", "set", host.wire, "master", bridge, "up")
    await must(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
    await must(*inside, "link", "set", "eth0", "up")
    await must(*inside, "link", "set", "lo", "up")


async def must(*command: str) -> None:
    """Runs a command. Raises OSError where it fails."""
    if not await run_quietly(*command):
        raise OSError(f"`{' '.join(command)}` failed: this machine allows no network namespaces")
