"""The parts that need no bubblewrap: the filter of system calls, the control groups' folders."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from gymmesh_resource.sandbox import Limits
from gymmesh_resource.sandbox.cgroups import make_group, remove_stale
from gymmesh_resource.sandbox.seccomp import UnknownMachine, filter_for

ALLOW, KILL, EPERM, NO_FAMILY = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050061
X86, ARM = 0xC000003E, 0xC00000B7


def decide(code: bytes, number: int, arch: int, *arguments: int) -> int:
    """What the kernel would decide: an interpreter of the few instructions that are used."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", code))
    at = register = 0
    while True:
        kind, yes, no, k = steps[at]
        at += 1
        if kind == 0x06:
            return int(k)
        if kind == 0x20:
            (register,) = struct.unpack_from("=I", data, k)
        else:
            met = {0x15: register == k, 0x35: register >= k, 0x45: bool(register & k)}[kind]
            at += yes if met else no


@pytest.mark.parametrize(
    ("machine", "arch", "number", "arguments", "verdict"),
    [
        ("x86_64", X86, 0, (), ALLOW),
        ("x86_64", X86, 231, (), ALLOW),
        ("x86_64", X86, 101, (), EPERM),
        ("x86_64", X86, 447, (), EPERM),
        ("x86_64", X86, 319, (), EPERM),
        ("aarch64", ARM, 279, (), EPERM),
        ("x86_64", X86, 56, (17,), ALLOW),
        ("x86_64", X86, 56, (0x10000000,), EPERM),
        ("x86_64", X86, 56, (0x40000000,), EPERM),
        ("x86_64", X86, 435, (), 0x00050026),
        ("x86_64", X86, 41, (1,), ALLOW),
        ("x86_64", X86, 41, (2,), ALLOW),
        ("x86_64", X86, 41, (40,), NO_FAMILY),
        ("x86_64", X86, 16, (0, 0x5401), ALLOW),
        ("x86_64", X86, 16, (0, 0x5412), EPERM),
        ("x86_64", X86, 16, (0, 0xFFFFFFFF00005412), EPERM),
        ("x86_64", X86, 0x40000000, (), KILL),
        ("x86_64", ARM, 0, (), KILL),
        ("x86_64", 0x40000003, 26, (), KILL),
        ("aarch64", ARM, 117, (), EPERM),
        ("aarch64", ARM, 63, (), ALLOW),
        ("aarch64", ARM, 198, (38,), NO_FAMILY),
        ("aarch64", ARM, 220, (0x20000,), EPERM),
        ("aarch64", X86, 63, (), KILL),
    ],
)
def test_the_filter(
    machine: str, arch: int, number: int, arguments: tuple[int, ...], verdict: int
) -> None:
    assert decide(filter_for(machine), number, arch, *arguments) == verdict


def test_an_unknown_machine() -> None:
    with pytest.raises(UnknownMachine, match="riscv64"):
        filter_for("riscv64")


def test_groups_of_version_1(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu"):
        (tmp_path / name / "box").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("4:memory:/box\n3:pids:/outside\n2:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n")
    group = make_group(0, root=tmp_path, own=own)
    assert group is not None
    assert group.version == 1
    folders = dict(group.folders)
    assert folders["memory"].parent == tmp_path / "memory" / "box"
    assert folders["pids"].parent == tmp_path / "pids"  # as in a container
    group.limit(Limits(memory_bytes=1000, processes=3))
    assert (folders["memory"] / "memory.limit_in_bytes").read_text() == "1000"
    assert (folders["pids"] / "pids.max").read_text() == "7"
    assert len(group.members) == 3


def test_groups_of_services_that_are_gone_are_removed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("2:memory:/\n1:pids:/\n")
    space = Path("/proc/self/ns/pid").stat().st_ino
    for name in ("memory", "pids"):
        for group in (f"{space}-999999999-0", f"{space}-{os.getpid()}-0", "1-999999999-0"):
            (tmp_path / name / f"gymmesh-sandbox-{group}").mkdir(parents=True)
            if group == f"{space}-999999999-0":
                continue
            (tmp_path / name / f"gymmesh-sandbox-{group}" / "cgroup.procs").touch()
    remove_stale(root=tmp_path, own=own)
    left = sorted(path.name for path in (tmp_path / "memory").iterdir())
    assert left == sorted(
        f"gymmesh-sandbox-{group}" for group in (f"{space}-{os.getpid()}-0", "1-999999999-0")
    )


def test_groups_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    for folder in (tmp_path, tmp_path / "box"):
        (folder / "cgroup.controllers").write_text("cpu memory pids")
    own = tmp_path / "own"
    own.write_text("0::/box\n")
    (tmp_path / "box" / "cgroup.subtree_control").write_text("memory pids")
    # A kernel adds what is asked for; a plain file holds the last word only.
    assert make_group(0, root=tmp_path, own=own) is None
    assert make_group(0, root=tmp_path / "nothing", own=tmp_path / "no-such-file") is None
