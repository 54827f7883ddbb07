"""Writes the OCI bundle of a sandbox's pod as the chart asks for it: bundle.py ROOTFS OUT VARIANT.

The variants are `pod` (what the chart gives it), `hostusers` (the same without a user namespace of
the pod's own) and `masked` (what a pod usually has of /proc).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROFILE = Path("deploy/images/sandbox-seccomp.json")
# As container runtimes do it, unless procMount is Unmasked.
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list"]
READONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
PROGRAM = """
import asyncio
from gymmesh_resource.sandbox import BubblewrapSandbox, Limits, SandboxUnavailable, program_in

async def main():
    sandbox = BubblewrapSandbox(concurrency=1)
    try:
        await sandbox.open()
        result = await sandbox.run(program_in("python", "print(6 * 7)"), Limits(wall_s=30))
        print("ran", result.ending.name, result.stdout.decode().strip())
    except SandboxUnavailable as error:
        print("refused", error)
    await sandbox.close()

asyncio.run(main())
"""


def main(rootfs: str, out: str, variant: str) -> None:
    """Writes the bundle's config.json."""
    capabilities = ("bounding", "effective", "inheritable", "permitted", "ambient")
    linux: dict[str, Any] = {
        "namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount", "network")],
        "seccomp": json.loads(PROFILE.read_text()),
    }
    if variant == "masked":
        linux |= {"maskedPaths": MASKED, "readonlyPaths": READONLY}
    if variant != "hostusers":
        mapping = [{"containerID": 0, "hostID": 1_000_000, "size": 65_536}]
        linux["namespaces"].append({"type": "user"})
        linux |= {"uidMappings": mapping, "gidMappings": mapping}
    process = {
        "user": {"uid": 10001, "gid": 10001},
        "cwd": "/tmp",
        "args": ["/opt/gymmesh/bin/python", "-c", PROGRAM],
        "env": ["PATH=/opt/gymmesh/bin:/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"],
        "noNewPrivileges": True,
        "capabilities": {name: [] for name in capabilities},
    }
    config = {
        "ociVersion": "1.0.2",
        "root": {"path": rootfs, "readonly": True},
        "process": process,
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _memory("/dev", "755"),
            _memory("/dev/shm", "1777"),
            _memory("/tmp", "1777"),
            _memory("/var/cache/gymmesh", "1777"),
        ],
        "linux": linux,
    }
    (Path(out) / "config.json").write_text(json.dumps(config, indent=1))


def _memory(path: str, mode: str) -> dict[str, Any]:
    options = ["nosuid", f"mode={mode}"]
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options}


if __name__ == "__main__":
    main(*sys.argv[1:])
