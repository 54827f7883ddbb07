"""The first process of a sandbox: a program of some hundred bytes that waits forever.

It must run in any root file system, which may have no program that waits. So it is created here and
needs nothing from the root. It ignores SIGCHLD, so that the kernel removes its ended children. It
writes a byte to its standard output when the sandbox is complete, closes what it inherited, and
pauses. Formats: elf(5); the machine code is the assembler's output for the lines beside it.
"""

from __future__ import annotations

import struct
from typing import Final

from gymmesh_sandbox_local.seccomp import UnknownProcessor

#: The byte that it writes once its sandbox is complete: the first one of `_ACTION`.
READY: Final = b"\1"

_X86_64 = (
    "b80d000000"  # mov $13, %eax            rt_sigaction(
    "bf11000000"  # mov $17, %edi              SIGCHLD,
    "488d353f000000"  # lea action(%rip), %rsi  &action,
    "31d2"  # xor %edx, %edx                   NULL,
    "41ba08000000"  # mov $8, %r10d            8)
    "0f05"  # syscall
    "b801000000"  # mov $1, %eax             write(
    "bf01000000"  # mov $1, %edi               1,
    "488d3524000000"  # lea action(%rip), %rsi  &action,
    "ba01000000"  # mov $1, %edx               1)
    "0f05"  # syscall
    "31ff"  # xor %edi, %edi
    "b803000000"  # 1: mov $3, %eax          close(%edi)
    "0f05"  # syscall
    "ffc7"  # inc %edi
    "83ff40"  # cmp $64, %edi
    "75f2"  # jne 1b
    "b822000000"  # 2: mov $34, %eax         pause()
    "0f05"  # syscall
    "ebf7"  # jmp 2b
    "0f1f4000"  # nop
)
_AARCH64 = (
    "c81080d2"  # mov x8, #134               rt_sigaction(
    "200280d2"  # mov x0, #17                  SIGCHLD,
    "01030010"  # adr x1, action               &action,
    "020080d2"  # mov x2, #0                   NULL,
    "030180d2"  # mov x3, #8                   8)
    "010000d4"  # svc #0
    "080880d2"  # mov x8, #64                write(
    "200080d2"  # mov x0, #1                   1,
    "41020010"  # adr x1, action               &action,
    "220080d2"  # mov x2, #1                   1)
    "010000d4"  # svc #0
    "090080d2"  # mov x9, #0
    "280780d2"  # 1: mov x8, #57             close(
    "e00309aa"  # mov x0, x9                   x9)
    "010000d4"  # svc #0
    "29050091"  # add x9, x9, #1
    "3f0101f1"  # cmp x9, #64
    "61ffff54"  # b.ne 1b
    "280980d2"  # 2: mov x8, #73             ppoll(
    "000080d2"  # mov x0, #0                   NULL,
    "010080d2"  # mov x1, #0                   0,
    "020080d2"  # mov x2, #0                   NULL,
    "030080d2"  # mov x3, #0                   NULL,
    "040080d2"  # mov x4, #0                   0)
    "010000d4"  # svc #0
    "f9ffff17"  # b 2b
)
# struct sigaction of the kernel: SIG_IGN, no flags, no restorer, an empty mask.
_ACTION = struct.pack("<4Q", 1, 0, 0, 0)
# By the name of platform.machine(): the number in elf.h, and the code.
_MACHINES = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}
_ADDRESS, _HEADERS = 0x400000, 64 + 56


def first_process_for(machine: str) -> bytes:
    """The program as an ELF file. Raises UnknownProcessor."""
    known = _MACHINES.get(machine)
    if known is None:
        raise UnknownProcessor(machine)
    number, code = known
    text = bytes.fromhex(code)
    text += bytes(-len(text) % 8) + _ACTION
    size = _HEADERS + len(text)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(identity, 2, number, 1, _ADDRESS + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    # One segment, to be read and run.
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x1000)
    return header + segment + text
