"""The filter of system calls for untrusted programs, assembled as classic BPF.

The filter permits everything except two groups. The first reaches beyond a program: tracing,
mounting, new namespaces, keys, kernel modules, the clock, io_uring, and sockets other than unix and
internet sockets (vsock would bypass the network namespace). The second holds memory outside of any
process, which no limit of processes counts. Pure: it creates bytes and changes nothing.

Formats: `struct sock_filter` of linux/filter.h (u16 code, u8 jt, u8 jf, u32 k) over `struct
seccomp_data` of linux/seccomp.h (u32 nr, u32 arch, u64 ip, u64 args[6]).
"""

from __future__ import annotations

import errno
import struct

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_DENY = _ERRNO | errno.EPERM
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, and NEWTIME's bit in unshare.
_NEW_NAMESPACES = (
    0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
)
_SOCKET_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into a terminal

# Names and numbers: x86_64 (asm/unistd_64.h), aarch64 (asm-generic/unistd.h).
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "personality": (135, 92),
    "vhangup": (153, 58),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Memory that is no process's own, and that limits of single processes do not count.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
}


class UnknownProcessor(ValueError):
    """There is no filter for this kind of processor, named as by `platform.machine()`."""

    def __init__(self, machine: str) -> None:
        super().__init__(
            f"the sandbox service has no filter of system calls for {machine} processors"
        )


# As in _DENIED, of calls that are allowed but for some arguments.
_CLONE, _SOCKET, _IOCTL = (56, 220), (41, 198), (16, 29)
_CLONE3 = 435
# The column of numbers, and the value of linux/audit.h.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def filter_for(machine: str) -> bytes:
    """The filter for a processor, named as by `platform.machine()`. Raises `UnknownProcessor`."""
    known = _MACHINES.get(machine)
    if known is None:
        raise UnknownProcessor(machine)
    column, audit_arch = known
    code = [
        _op(_LOAD, _ARCH_AT),
        _op(_JUMP_EQUAL, audit_arch, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER_AT),
        # The x32 interface has other numbers for the same calls.
        _op(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1),
        _op(_RETURN, _KILL),
    ]
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            code += _if_equal(number, _DENY)
    # A filter cannot look behind clone3's pointer: without it, libraries use clone.
    code += _if_equal(_CLONE3, _ERRNO | errno.ENOSYS)
    namespaces = [_op(_JUMP_SET, _NEW_NAMESPACES, 0, 1), _op(_RETURN, _DENY)]
    code += _when(_CLONE[column], 0, namespaces)
    families = [op for family in _SOCKET_FAMILIES for op in _if_equal(family, _ALLOW)]
    code += _when(_SOCKET[column], 0, [*families, _op(_RETURN, _ERRNO | errno.EAFNOSUPPORT)])
    code += _when(_IOCTL[column], 1, [op for one in _IOCTLS for op in _if_equal(one, _DENY)])
    code.append(_op(_RETURN, _ALLOW))
    return b"".join(code)


def _op(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, k)


def _if_equal(value: int, result: int) -> list[bytes]:
    """Return the result if the loaded value is this value."""
    return [_op(_JUMP_EQUAL, value, 0, 1), _op(_RETURN, result)]


def _when(number: int, argument: int, body: list[bytes]) -> list[bytes]:
    """The body, with the argument's low half loaded, for one system call; then load its number
    again.
    """
    skip = len(body) + 2
    return [
        _op(_JUMP_EQUAL, number, 0, skip),
        _op(_LOAD, _ARGUMENTS_AT + 8 * argument),
        *body,
        _op(_LOAD, _NUMBER_AT),
    ]
