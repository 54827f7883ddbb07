"""How a sandbox is created: the mounts of its file system, and bubblewrap's command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.users import ImageUser
from gymmesh_sandbox_local import bubblewrap_command

# Where the spawner mounts the file system, in a mount namespace that only the sandbox has: a
# folder that every machine has, that every user may pass through, and that holds no files.
_PLACE = "/sys"
_MS_NOSUID, _MS_NODEV = 2, 4
_SHM_BYTES = 64 << 20


def upper_folder(spec: SandboxSpec, folder: Path) -> Path:
    """The folder for what a sandbox writes; with `disk_bytes`, on a file system that only the
    sandbox sees.
    """
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


def sandbox_command(
    machine: Machine, spec: SandboxSpec, binds: Sequence[Path], user: ImageUser
) -> list[bytes]:
    """The command that creates the sandbox and runs its first process."""
    root = ["--bind", _PLACE, "/"]
    for bind in binds:
        root += ["--ro-bind", str(bind), str(bind)]
    size = spec.resources.memory_bytes // 2 or _SHM_BYTES
    return bubblewrap_command(
        machine.bwrap,
        root=root,
        after=("--perms", "1777", "--size", str(size), "--tmpfs", "/dev/shm"),
        user=None if machine.privileged else (user.uid, user.gid),
        network=spec.network.WhichOneof("kind") == "open",
    )
