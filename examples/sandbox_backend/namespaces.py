"""Sandboxes by two commands: bwrap starts a sandbox, nsenter starts programs in the sandbox."""

import asyncio
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Any

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_sandbox.backends import SandboxBackend, SandboxSpec
from gymmesh_sandbox.backends.image_shell import CommandProgram, ShellSandbox
from gymmesh_sandbox.errors import image_not_found

ROOT = (
    "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--proc", "/proc",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/box",
)  # fmt: skip
FIRST = ("/bin/sh", "-c", "echo ready >&2; exec sleep infinity")
SPACES = ("--user", "--preserve-credentials", "--mount", "--pid", "--net", "--ipc", "--uts")
# nsenter stops when its direct child is stopped. So the direct child is a shell.
PROGRAM = (
    "setpriv",
    "--bounding-set=-all",
    "--no-new-privs",
    "/bin/sh",
    "-c",
    '"$@"; exit $?',
    "sh",
)


class NamespaceSandbox(ShellSandbox):
    """A first process that sleeps in its own namespaces, and programs that enter its namespaces."""

    def __init__(self, spec: SandboxSpec, first: Process, number: int) -> None:
        super().__init__(spec, backend="namespaces", image="host", image_digest="")
        self._first = first
        self._number = number
        self._watching = asyncio.create_task(self._watch())

    async def start_program(self, argv: Sequence[str]) -> CommandProgram:
        enter = ("nsenter", f"--target={self._number}", *SPACES, "--wdns=/box")
        return await CommandProgram.start(*enter, *PROGRAM, *argv)

    async def still_runs(self) -> bool:
        return self._first.returncode is None

    async def remove(self) -> None:
        self._watching.cancel()
        if self._first.returncode is None:
            self._first.kill()
        await self._first.wait()

    async def _watch(self) -> None:
        await self._first.wait()
        self.lose("its first process ended")


class NamespaceBackend(SandboxBackend):
    """Runs each sandbox in namespaces of this machine."""

    name = "namespaces"
    default_image = "host"
    capabilities = sandbox_pb2.Capabilities(networks=[sandbox_pb2.NETWORK_KIND_NONE])

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options:
            raise ValueError(f"{next(iter(options))}: this backend has no options")
        self._running: set[NamespaceSandbox] = set()

    async def open(self) -> None:
        for program in ("bwrap", "nsenter", "setpriv"):
            if shutil.which(program) is None:
                raise ConfigError(f"{program} is missing; apt-get install bubblewrap util-linux")

    async def end_leftovers(self, instance_id: str) -> int:
        return 0  # a sandbox ends with the process that started it

    async def images(self) -> Sequence[sandbox_pb2.Image]:
        return [sandbox_pb2.Image(name="host")]

    async def create(self, spec: SandboxSpec) -> NamespaceSandbox:
        if spec.root != "host":
            raise image_not_found(str(spec.root), "the only image is 'host'")
        command = ("bwrap", *ROOT, "--info-fd", "1", *FIRST)
        first = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        assert first.stdout is not None
        assert first.stderr is not None
        about = json.loads(await first.stdout.readuntil(b"}"))
        sandbox = NamespaceSandbox(spec, first, about["child-pid"])
        self._running.add(sandbox)
        try:
            await first.stderr.readuntil(b"ready")
            await sandbox.prepare()
        except BaseException:
            await sandbox.end()
            raise
        return sandbox

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.end() for sandbox in self._running))
