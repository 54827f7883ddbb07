"""The networks that a task of Harbor sets for its sandboxes. Pure.

A sandbox has one network from its start to its end, so the phases of a task that share a sandbox
must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gymmesh_resource.environments.harbor.task import TaskNetwork, TaskRefused
from gymmesh_resource.environments.harbor.toml_schema import EnvironmentTable, Phase, place

_MODES: Final = ("no-network", "public", "allowlist")


def network_of(machine: EnvironmentTable, table: str) -> TaskNetwork:
    """The network of a sandbox without its phases. Raises TaskRefused."""
    mode = machine.network_mode
    if mode is None and machine.allowed_hosts is None and machine.allow_internet is False:
        mode = "no-network"
    return _network(table, mode or "public", machine.allowed_hosts)


def phase_network(phase: Phase, table: str) -> TaskNetwork | None:
    """The network that a phase sets for itself, if any. Raises TaskRefused."""
    if phase.network_mode is None:
        if phase.allowed_hosts is not None:
            raise _hosts_refused(table)
        return None
    return _network(table, phase.network_mode, phase.allowed_hosts)


def differs(table: str) -> TaskRefused:
    """The refusal of a phase whose sandbox has another network."""
    return TaskRefused(
        place(f"{table}.network_mode"),
        "differs from the network of the sandbox, which cannot change during a task. To use "
        "one network for all tasks, set the option 'network'",
    )


def _network(table: str, mode: str, hosts: Sequence[str] | None) -> TaskNetwork:
    if mode not in _MODES:
        raise TaskRefused(
            place(f"{table}.network_mode"),
            f"is {mode!r}; use 'no-network', 'public' or 'allowlist'",
        )
    if mode != "allowlist" and hosts:
        raise _hosts_refused(table)
    if mode == "no-network":
        return "no-network"
    if mode == "public":
        return "public"
    for host in hosts or ():
        if ":" in host or "/" in host or not host.strip():
            raise TaskRefused(
                place(f"{table}.allowed_hosts"), f"has {host!r}; only host names are supported"
            )
    return tuple(host.strip().lower().rstrip(".") for host in hosts or ())


def _hosts_refused(table: str) -> TaskRefused:
    return TaskRefused(
        place(f"{table}.allowed_hosts"), "works only with the network_mode 'allowlist'"
    )
