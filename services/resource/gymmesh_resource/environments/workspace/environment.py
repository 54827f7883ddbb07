"""A workspace: files in a sandbox, to be changed as the task says, judged by commands.

An agent works there with the tool `shell`, or directly: the sandbox is lent to it. The files that
judge come into a sandbox only when the agent has ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource import (
    Environment,
    Expected,
    Rollout,
    SandboxHandle,
    SandboxSpec,
    Session,
    Task,
    TaskInvalid,
    Verdict,
)
from gymmesh_resource.environments._in_sandbox import (
    failed_how,
    root_of,
    run_line,
    shell_output,
)
from gymmesh_resource.environments.workspace.commands import CheckResult, run_check
from gymmesh_resource.environments.workspace.harbor_folder import harbor_files
from gymmesh_resource.environments.workspace.links import remove_links
from gymmesh_resource.environments.workspace.row import WorkspaceRow, read_row
from gymmesh_resource.environments.workspace.sources import TaskFolder
from gymmesh_resource.environments.workspace.verdict import WorkspaceRefused, verdict_of
from gymmesh_resource.folder_files import FolderFiles
from gymmesh_resource.tools import tool
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import WORKSPACE, Reach
from gymmesh_sandbox_access.leftovers import SeenProcesses, end_others, running

_MIB: Final = 1 << 20
_SNAPSHOT_S: Final = 3600
_MAKE_WAY_S: Final = 30.0
# What the agent closed to its own user could be neither judged nor copied.
_OPEN: Final = (
    r"find . -type d ! -perm -700 -exec chmod u+rwx {} \; ; "
    r"find . -type f ! -perm -400 -exec chmod u+r {} \;"
)
_CLEAR: Final = "find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +"
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


@dataclass(slots=True)
class WorkspaceState:
    """What is kept of a session: the processes from before the agent, the workspace once it was
    taken out of the agent's sandbox (its archive, or the name of a snapshot), and how many
    sandboxes were made for checks.
    """

    before: SeenProcesses = field(default_factory=SeenProcesses)
    taken: bytes | None = None
    snapshot: str = ""
    judged: int = 0


class WorkspaceEnvironment(Environment[WorkspaceState]):
    """Files in a sandbox, which the model changes; commands judge the files. Tool: a shell.

    The reward is the weighted mean of the row's checks.
    """

    version = "1"
    state = WorkspaceState
    keep_state = False
    examples = "tasks.jsonl"
    sandbox = SandboxSpec(lent=True)

    def __init__(
        self,
        *,
        folder: str | None = None,
        network: Literal["agent", "none", "open"] | list[str] = "agent",
        checks_network: Literal["none", "open"] | list[str] = "none",
        shell_timeout_s: _Seconds = 8.0,
        workspace_mb: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 256,
    ) -> None:
        """Options.

        folder: where the folders and archives are that rows name.
        network: what the agent's sandbox reaches, as SandboxSpec has it; `agent`: the model
            endpoint of the agent that runs the rollout. checks_network: the same of a sandbox for
            checks alone (`verify_in: fresh` or `snapshot`).
        shell_timeout_s: seconds that a command of the tool may take.
        workspace_mb: MiB of a workspace's archive, compressed, that `fresh` copies; a larger one
            earns nothing.
        """
        if folder is not None and not Path(folder).is_dir():
            raise ValueError(f"folder: there is no folder {folder}.")
        self._folder = TaskFolder(Path(folder) if folder is not None else None)
        self._network: Reach = network
        self._checks_network: Reach = checks_network
        self._shell_s = shell_timeout_s
        self._most_bytes = workspace_mb * _MIB

    def check_task(self, task: Task) -> None:
        """The row must have checks, and files that are there."""
        row = read_row(task)
        self._folder.check("", row)
        self._folder.check("tests.", row.tests)

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        return {WORKSPACE: _spec(read_row(task), self._network, lent=True)}

    async def opening(self, session: Session[WorkspaceState]) -> Sequence[str]:
        """Nothing is said; the files are put there before the agent begins."""
        row = read_row(session.task)
        await self._prepare(session.sandbox, row)
        if row.verify_in == "same":
            session.state.before = await running(session.sandbox)
        return ()

    @tool
    async def shell(self, session: Session[WorkspaceState], command: str) -> str:
        """Run a line of shell in the workspace and see what it writes.

        Args:
            command: a line for /bin/sh
        """
        return await shell_output(session.sandbox, command, self._shell_s)

    def expected(self, task: Task) -> Expected | None:
        """The row's own solution, as one command."""
        solution = read_row(task).solution
        if not solution:
            return None
        return Expected(kind="calls", calls=[("shell", {"command": solution})])

    def harbor_folder(self, task: Task) -> FolderFiles:
        """The row's files, set-up, tests and checks as a task folder of Harbor."""
        network, checks_network = self._network, self._checks_network
        return harbor_files(task, read_row(task), self._folder, network, checks_network)

    async def verify(self, session: Session[WorkspaceState], rollout: Rollout) -> Verdict:
        """Put the tests there and run the checks, in the row's order."""
        row = read_row(session.task)
        try:
            if row.verify_in == "same":
                root = await root_of(session.sandbox)
                await end_others(session.sandbox, session.state.before, user=root)
                return await self._judge(session.sandbox, row, rollout)
            with rollout.stage("copy"):
                sandbox = await self._copy(session, row)
            try:
                return await self._judge(sandbox, row, rollout)
            finally:
                await sandbox.end()
        except WorkspaceRefused as error:
            return Verdict(0.0, explanation=str(error))

    async def _judge(self, sandbox: SandboxHandle, row: WorkspaceRow, rollout: Rollout) -> Verdict:
        """The verdict in a sandbox that holds the workspace. Raises as `run_check`."""
        root = await root_of(sandbox)
        removed = await self._put_tests(sandbox, row, root) if row.tests else []
        checks = row.named_checks()
        before = await running(sandbox, user=root)
        # Code of the agent's that a check left running could change the next one as it starts.
        clear = partial(end_others, sandbox, before, user=root)
        results: dict[str, CheckResult] = {}
        for name, check in checks.items():
            if results:
                await clear()
            with rollout.stage(name) as stage:
                results[name] = await run_check(sandbox, check, clear)
                stage.note = results[name].note
        return verdict_of(checks, results, removed)

    async def _put_tests(self, sandbox: SandboxHandle, row: WorkspaceRow, root: str) -> list[str]:
        """Puts the tests there; the links of the workspace that led to them and are removed.

        Raises WorkspaceRefused, and MeshError of the sandbox.
        """
        path, owner = row.tests.path, row.tests.user or root
        about = (await sandbox.about()).sandbox
        around = PurePosixPath(about.workdir).is_relative_to(path)
        if not around:
            await _make_way(sandbox, path, owner, root)
        try:
            await self._folder.put("tests.", row.tests, sandbox.files, path, owner)
        except MeshError as error:
            disk = about.resources.disk_bytes
            # A disk that the tests alone would fill is the row's fault.
            if not _filled(error) or self._folder.size(row.tests) > disk // 2:
                raise
            raise WorkspaceRefused(
                "the agent's work left too little space for the tests on the sandbox's disk of "
                f"{disk // _MIB} MiB"
            ) from None
        return [] if around else await remove_links(sandbox, path, root)

    async def _copy(self, session: Session[WorkspaceState], row: WorkspaceRow) -> SandboxHandle:
        """A new sandbox with what the agent left. The agent's own ends once it was read, so that
        no rollout holds two places.

        Raises WorkspaceRefused, and MeshError.
        """
        state = session.state
        state.judged += 1
        role = f"checks-{state.judged}"
        spec = _spec(row, self._checks_network, lent=False)
        if row.verify_in == "snapshot":
            if not state.snapshot:
                state.snapshot = (await session.sandbox.snapshot(ttl_s=_SNAPSHOT_S)).name
                await session.sandbox.end()
            # Its digest is its own.
            return session.sandboxes.add(role, replace(spec, image=state.snapshot, image_digest=""))
        if state.taken is None:
            await _check_root(session.sandbox)
            state.taken = await self._archive(session.sandbox)
            await session.sandbox.end()
        sandbox = session.sandboxes.add(role, spec)
        await self._prepare(sandbox, row)
        await run_line(sandbox, _CLEAR, row.setup_timeout_s)
        await sandbox.files.unpack(state.taken, ".")
        return sandbox

    async def _archive(self, sandbox: SandboxHandle) -> bytes:
        """The workspace as an archive. Raises WorkspaceRefused, and MeshError."""
        root = await root_of(sandbox)
        await sandbox.exec(_OPEN, timeout_s=_MAKE_WAY_S, user=root)
        content = bytearray()
        try:
            async with aclosing(sandbox.files.archive_pieces(".", user=root)) as pieces:
                async for piece in pieces:
                    content += piece
                    if len(content) > self._most_bytes:
                        raise WorkspaceRefused(
                            f"the workspace's archive is larger than {self._most_bytes // _MIB} MiB"
                        )
        except MeshError as error:
            # The service packs so much and no more.
            limit, most = map(error.metadata.get, ("limit", "limit_bytes"))
            if error.reason != errors_pb2.ERROR_REASON_FIELD_INVALID or most is None:
                raise
            raise WorkspaceRefused(
                f"the workspace's files are larger than {most} bytes, the limit {limit} of the "
                "sandbox service"
            ) from None
        return bytes(content)

    async def _prepare(self, sandbox: SandboxHandle, row: WorkspaceRow) -> None:
        """Put the row's files into a new sandbox, and run its set-up. Raises TaskInvalid."""
        await self._folder.put("", row, sandbox.files, ".", "")
        for index, line in enumerate(row.setup):
            result = await sandbox.exec(line, timeout_s=row.setup_timeout_s)
            if result.timed_out:
                raise TimeoutError(f"setup[{index}] took longer than {row.setup_timeout_s:g} s")
            if not result.ok:
                raise TaskInvalid(f"setup[{index}]", f"failed in the sandbox, {failed_how(result)}")


def _spec(row: WorkspaceRow, network: Reach, *, lent: bool) -> SandboxSpec:
    limits = row.limits
    return SandboxSpec(
        image=row.image,
        image_digest=row.image_digest,
        cpus=limits.cpus,
        memory_mb=limits.memory_mb,
        disk_mb=limits.disk_mb,
        pids=limits.pids,
        life_s=limits.life_s,
        network=network,
        env=row.env,
        user=row.user,
        workdir=row.workdir,
        lent=lent,
    )


async def _check_root(sandbox: SandboxHandle) -> None:
    """Raises TaskInvalid for a workspace that is the whole file system."""
    if (await sandbox.about()).sandbox.workdir in ("", "/"):
        raise TaskInvalid(
            "workdir", "is the root of the image. Name a folder, or choose another verify_in"
        )


async def _make_way(sandbox: SandboxHandle, path: str, owner: str, root: str) -> None:
    """Removes what the agent may have left where the tests go, and makes the folder for a user who
    could not.
    """
    folder = shlex.quote(path)
    line = f"rm -rf {folder}"
    if owner != root:
        line += f" && mkdir -p {folder} && chown {shlex.quote(owner)} {folder}"
    await run_line(sandbox, line, _MAKE_WAY_S, user=root, cwd="/" if root else "")


def _filled(error: MeshError) -> bool:
    """Whether the sandbox's own disk is full, and not that of its host."""
    full = error.reason == errors_pb2.ERROR_REASON_SANDBOX_DISK_FULL
    return full and error.metadata.get("disk") != "host"
