"""How a sandbox is made: the mounts of its file system, and bubblewrap's command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser

# Where the spawner mounts the file system, in a mount namespace that only the sandbox has: a
# folder that every machine has, that every user may pass through, and that holds no files.
_PLACE = "/sys"
_MS_NOSUID, _MS_NODEV = 2, 4
_SHM_BYTES = 64 << 20
# What the kernel shows of its host, and no program inside needs.
_HIDDEN = ("/proc/cmdline", "/proc/keys")


def upper_folder(spec: SandboxSpec, folder: Path) -> Path:
    """What a sandbox writes; with `disk_bytes`, on a file system that only it sees."""
    return folder / "disk" / "upper" if spec.resources.disk_bytes else folder / "upper"


def overlay_mounts(
    machine: Machine, spec: SandboxSpec, layers: Sequence[Path], folder: Path
) -> Sequence[Mapping[str, object]]:
    """The mounts of a copy-on-write file system, for the spawner."""
    upper = upper_folder(spec, folder)
    mounts: list[Mapping[str, object]] = []
    common = {"flags": _MS_NOSUID | _MS_NODEV, "folder": os.fsencode(folder)}
    if disk := spec.resources.disk_bytes:
        owner = machine.root_id if machine.privileged else 0
        mounts.append(
            {
                "kind": b"tmpfs",
                "source": b"tmpfs",
                "target": b"disk",
                "options": b"size=%d,mode=755" % disk,
                "make": [(b"disk/upper", owner), (b"disk/work", owner)],
                **common,
            }
        )
    # Relative paths: they are short, of which a mount takes 4 KiB, and have no characters that
    # the options have a use for.
    lower = b":".join(os.fsencode(os.path.relpath(layer, folder)) for layer in layers)
    options = b"lowerdir=%b,upperdir=%b,workdir=%b,volatile,index=off" % (
        lower,
        os.fsencode(upper.relative_to(folder)),
        os.fsencode((upper.parent / "work").relative_to(folder)),
    )
    if not machine.privileged:
        options += b",userxattr"
    mounts.append(
        {
            "kind": b"overlay",
            "source": b"overlay",
            "target": os.fsencode(_PLACE),
            "options": options,
            "make": [],
            **common,
        }
    )
    return mounts


def bubblewrap_command(
    machine: Machine, spec: SandboxSpec, binds: Sequence[Path], user: ImageUser
) -> list[bytes]:
    """The command that makes the sandbox and runs its first process."""
    command = [machine.bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--hostname", "sandbox", "--die-with-parent"]
    command += ["--as-pid-1", "--new-session", "--cap-drop", "ALL"]
    if spec.network.WhichOneof("kind") != "open":
        command.append("--unshare-net")
    if not machine.privileged:
        uid, gid = str(user.uid), str(user.gid)
        command += ["--unshare-user", "--uid", uid, "--gid", gid]
    command += ["--bind", _PLACE, "/"]
    for bind in binds:
        command += ["--ro-bind", str(bind), str(bind)]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for path in _HIDDEN:
        if os.path.exists(path):
            command += ["--ro-bind", "/dev/null", path]
    size = spec.resources.memory_bytes // 2 or _SHM_BYTES
    command += ["--perms", "1777", "--size", str(size), "--tmpfs", "/dev/shm"]
    command += ["--remount-ro", "/dev"]
    # The descriptors that the spawner passes: see its `_start_box`.
    command += ["--json-status-fd", "3", "--seccomp", "4", "--", "/proc/self/fd/5"]
    return [os.fsencode(word) for word in command]
