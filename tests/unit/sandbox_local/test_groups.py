"""The control groups' folders and files, in folders that stand for the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gymmesh_sandbox.backends.base import ProcessEnded
from gymmesh_sandbox.backends.bubblewrap.process import killed_meanwhile
from gymmesh_sandbox_local import (
    GroupLimits,
    Groups,
    MemoryEvents,
    SandboxGroup,
    memory_events_of_machine,
)

LIMITS = GroupLimits(memory_bytes=1000, pids=3, cpu_millis=500, yields=True)


def test_groups_of_version_1(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu"):
        (tmp_path / name / "box").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("4:memory:/box\n3:pids:/outside\n2:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n")
    groups = Groups("owner", root=tmp_path, own=own)
    assert groups.bounds_cpu
    group = groups.make("b-1", LIMITS)
    assert group.version == 1
    assert group.folders["memory"].parent == tmp_path / "memory" / "box"
    assert group.folders["pids"].parent == tmp_path / "pids"  # as in a container
    assert (group.folders["memory"] / "memory.limit_in_bytes").read_text() == "1000"
    assert (group.folders["pids"] / "pids.max").read_text() == "5"  # with those of the sandbox
    assert (group.folders["cpu"] / "cpu.shares").read_text() == "512"
    assert (group.folders["cpu"] / "cpu.cfs_quota_us").read_text() == "50000"
    assert len(group.join_files) == 3
    group.limit(GroupLimits(memory_bytes=2000, pids=3))  # of the next program
    assert (group.folders["memory"] / "memory.limit_in_bytes").read_text() == "2000"


def test_groups_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    for folder in (tmp_path, tmp_path / "box"):
        (folder / "cgroup.controllers").write_text("cpu memory pids")
    own = tmp_path / "own"
    own.write_text("0::/box\n")
    # A kernel adds what is asked for; a plain file holds the last word only.
    (tmp_path / "box" / "cgroup.subtree_control").write_text("memory pids")
    assert not Groups("owner", root=tmp_path, own=own).usable()
    assert not Groups("owner", root=tmp_path / "nothing", own=tmp_path / "no-such-file").usable()


def test_groups_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("2:memory:/\n1:pids:/\n")
    space = os.stat("/proc/self/ns/pid").st_ino
    gone, here, elsewhere = f"{space}-999999999-0", f"{space}-{os.getpid()}-0", "1-999999999-0"
    for name in ("memory", "pids"):
        for group in (gone, here, elsewhere):
            (tmp_path / name / f"gymmesh-box-of-{group}").mkdir(parents=True)
    Groups(None, root=tmp_path, own=own).remove_stale()
    for name in ("memory", "pids"):
        left = sorted(path.name for path in (tmp_path / name).iterdir())
        assert left == sorted(f"gymmesh-box-of-{group}" for group in (here, elsewhere))


def test_two_owners_have_different_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder that is no group of the kernel's is not gone in the end, however long one waits.
    monkeypatch.setattr("gymmesh_sandbox_local.groups._REMOVE_S", 0.0)
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
    own = tmp_path / "own"
    own.write_text("2:memory:/\n1:pids:/\n")
    one, other = (Groups(owner, root=tmp_path, own=own) for owner in ("a", "b"))
    assert one.make("b-1", LIMITS).folders != other.make("b-1", LIMITS).folders
    with pytest.raises(OSError, match="exists"):
        one.make("b-1", LIMITS)


def test_a_kill_at_the_sandboxs_limit_is_told_from_one_of_the_machine(tmp_path: Path) -> None:
    group = SandboxGroup({"memory": tmp_path}, 2)
    assert group.memory_events() == MemoryEvents()  # there is no such file
    events = tmp_path / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\noom_group_kill 0\n")
    before = group.memory_events()
    assert killed_meanwhile(before, group.memory_events()) == ProcessEnded(signal=9)
    events.write_text("max 7\noom 0\noom_kill 1\n")
    machine = group.memory_events()
    assert killed_meanwhile(before, machine) == ProcessEnded(signal=9, machine_out_of_memory=True)
    events.write_text("max 9\noom 2\noom_kill 2\n")
    at_limit = killed_meanwhile(machine, group.memory_events())
    assert at_limit == ProcessEnded(signal=9, out_of_memory=True)


def test_groups_of_version_1_know_their_own_limit_alone(tmp_path: Path) -> None:
    group = SandboxGroup({"memory": tmp_path}, 1)
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert group.memory_events() == MemoryEvents(limit_hits=3, kills=3)


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free_pages 12\noom_kill 4\n")
    assert memory_events_of_machine(vmstat) == MemoryEvents(kills=4)
    assert memory_events_of_machine().kills >= 0
    assert memory_events_of_machine(tmp_path / "none") == MemoryEvents()
