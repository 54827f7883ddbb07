"""One running sandbox: its leases, processes and repeats, and the calls that use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar

from gymmesh.sandbox.v1 import grant_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, copy_of
from gymmesh_sandbox.archives import Archives
from gymmesh_sandbox.backends import RunningSandbox
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.leases import Lease, Leases
from gymmesh_sandbox.processes import ProcessLimits, ProcessTable, SandboxProcess
from gymmesh_sandbox.repeats import CallRepeats
from gymmesh_sandbox.requests import SandboxPlan, network_kind
from gymmesh_sandbox.timers import Timers

T = TypeVar("T")
_SERVICE: Final = "gymmesh.sandbox.v1.SandboxService"


class LiveSandbox:
    """A running sandbox.

    Args:
        plan: what was requested.
        running: the backend's sandbox.
        service: the name of the sandbox service.
        owner: the identity of the caller that created the sandbox.
        config: the service's configuration.
        timers: the service's timers.
        folder: where archives are stored while they arrive.
        on_stuck: called if a process does not end after it was killed.
    """

    def __init__(
        self,
        plan: SandboxPlan,
        running: RunningSandbox,
        *,
        service: str,
        instance_id: str,
        owner: str,
        config: SandboxConfig,
        timers: Timers,
        folder: str,
        on_stuck: Callable[[LiveSandbox], None],
    ) -> None:
        clock = timers.clock
        now, life_s = clock.now(), plan.spec.resources.life_s
        self.id = plan.spec.sandbox_id
        self.plan = plan
        self.running = running
        self.owner = owner
        self.ends = now + life_s if life_s else float("inf")
        self.leases = Leases(
            self.id, ttl_s=plan.ttl_s, max_ttl_s=config.max_ttl_s, ends=self.ends, now=now
        )
        self.processes = ProcessTable(
            most_running=config.max_processes,
            kept_bytes=config.kept_output_bytes,
            repeat_s=config.repeat_s,
            timers=timers,
            on_stuck=lambda: on_stuck(self),
        )
        self.archives = Archives(folder, self.id, config.max_archive_bytes, config.repeat_s, timers)
        # A process answers, and its answer is kept, for as long as the table has it.
        self.execs = CallRepeats[SandboxProcess](f"{_SERVICE}/Exec", kept=None)
        self.starts = CallRepeats[SandboxProcess](f"{_SERVICE}/StartProcess", kept=None)
        self.port_calls = CallRepeats[sandbox_pb2.CallPortResponse](f"{_SERVICE}/CallPort")
        self.snapshots = CallRepeats[sandbox_pb2.SnapshotSandboxResponse](
            f"{_SERVICE}/SnapshotSandbox", keeps_errors=False
        )
        self.forks = CallRepeats[sandbox_pb2.ForkSandboxResponse](
            f"{_SERVICE}/ForkSandbox", keeps_errors=False, kept=None
        )
        self.lends = CallRepeats[sandbox_pb2.LendSandboxResponse](f"{_SERVICE}/LendSandbox")
        self.process: SandboxProcess | None = None  # that was started with it
        self._service = service
        self._instance_id = instance_id
        self._clock = clock
        self._started_ns = clock.unix_ns()
        self._used_ns = 0  # by another lease than the own one
        self._uses = 0  # streams that run by such leases
        self._calls: set[_RunningCall] = set()
        self._lost: MeshError | None = None

    @property
    def ref(self) -> grant_pb2.SandboxRef:
        """The reference that names the sandbox."""
        return grant_pb2.SandboxRef(
            sandbox_id=self.id,
            service=self._service,
            instance_id=self._instance_id,
            image=self.running.image,
            image_digest=self.running.image_digest,
        )

    @property
    def info(self) -> sandbox_pb2.SandboxInfo:
        """The sandbox's description for people."""
        endless = self.ends == float("inf")
        return sandbox_pb2.SandboxInfo(
            sandbox=self.ref,
            resources=self.plan.spec.resources,
            network=network_kind(self.plan.spec.network),
            workdir=self.running.workdir,
            user=self.running.user,
            labels=self.plan.spec.labels,
            rollout_id=self.plan.request.rollout_id,
            started_unix_nano=self._started_ns,
            expires_unix_nano=self._clock.unix_of(self.leases.own.expires),
            ends_unix_nano=0 if endless else self._clock.unix_of(self.ends),
            processes=self.processes.running,
            used_unix_nano=self._clock.unix_ns() if self._uses else self._used_ns,
        )

    def note_use(self, lease: Lease) -> None:
        """A call with a lease was made."""
        if not lease.own:
            self._used_ns = self._clock.unix_ns()

    @contextmanager
    def in_use(self, lease: Lease) -> Generator[None]:
        """A stream with a lease is running."""
        self._uses += not lease.own
        try:
            yield
        finally:
            self._uses -= not lease.own
            self.note_use(lease)

    def grant(self, secret: bytes, lease: Lease, role: str = "") -> grant_pb2.SandboxGrant:
        """The grant that can be passed on."""
        return grant_pb2.SandboxGrant(
            sandbox=self.ref,
            lease=secret,
            role=role,
            workdir=lease.scope.folder.decode("utf-8", "replace"),
            expires_unix_nano=self._clock.unix_of(lease.expires),
        )

    def call(self) -> _RunningCall:
        """A context manager for a call's wait for the backend.

        Raises SANDBOX_LOST from the block if the sandbox ends meanwhile.
        """
        return _RunningCall(self)

    async def each(self, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """The results of a backend's iterator. Raises SANDBOX_LOST if the sandbox ends
        meanwhile.
        """
        try:
            while True:
                with self.call():
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    async def start(
        self,
        spec: process_pb2.ProcessSpec,
        limits: ProcessLimits,
        *,
        takes_stdin: bool,
        on_forgotten: Callable[[], None],
    ) -> SandboxProcess:
        """Starts a process. Raises SANDBOX_LIMIT, SANDBOX_LOST and what the backend raises."""
        self.processes.reserve()
        try:
            with self.call():
                running = await self.running.start(spec)
        except BaseException:
            self.processes.give_back()
            raise
        return self.processes.add(
            running, limits, takes_stdin=takes_stdin, on_forgotten=on_forgotten
        )

    def lose(self, error: MeshError) -> None:
        """The sandbox ended: calls that use it end with the error."""
        if self._lost is None:
            self._lost = error
            self.processes.lose(error)
            for call in list(self._calls):
                call.cancel()

    async def let_go(self) -> None:
        """Ends what is kept for the sandbox, after `lose`."""
        assert self._lost is not None
        await self.processes.give_up(self._lost)
        await self.archives.close()


class _RunningCall:
    """See LiveSandbox.call. It is a class because every call creates one."""

    __slots__ = ("_before", "_cancelled", "_sandbox", "_task")

    def __init__(self, sandbox: LiveSandbox) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sandbox = sandbox
        self._task = task
        self._before = task.cancelling()
        self._cancelled = False

    def cancel(self) -> None:
        """The sandbox ended."""
        self._cancelled = True
        self._task.cancel()

    def __enter__(self) -> None:
        if self._sandbox._lost is not None:
            raise copy_of(self._sandbox._lost)
        self._sandbox._calls.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sandbox._calls.discard(self)
        lost = self._sandbox._lost
        if self._cancelled and self._task.uncancel() > self._before:
            return  # the caller itself is cancelled, too
        if lost is not None and (error is None or isinstance(error, MeshError) or self._cancelled):
            # What a backend says of a sandbox that goes down is a consequence of it.
            raise copy_of(lost) from None
