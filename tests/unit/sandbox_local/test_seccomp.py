"""The filter of system calls, as the kernel reads it."""

from __future__ import annotations

import struct

import pytest

from gymmesh_sandbox_local import UnknownProcessor, filter_for

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
    with pytest.raises(UnknownProcessor, match="riscv64"):
        filter_for("riscv64")
