"""The sandboxes of one instance: how they are created, how they end, and why.

Invariants: every sandbox in the table has a place. A sandbox ends if its owner or an operator ends
it, if its own lease or its lifetime expires, if its backend loses it, and if the service closes.
Its place is free when nothing of it is left.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import owned
from gymmesh_runtime.timers import cancel_and_wait, doubled_s, to_its_end
from gymmesh_sandbox import metrics
from gymmesh_sandbox.backends import OUT_OF_MEMORY, RunningSandbox, SandboxBackend, SandboxSpec
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.errors import (
    draining,
    image_failed,
    sandbox_limit,
    sandbox_lost,
    sandbox_not_found,
    sandbox_out_of_memory,
    start_timeout,
)
from gymmesh_sandbox.leases import Scope
from gymmesh_sandbox.live import LiveSandbox
from gymmesh_sandbox.places import Places, PlacesTaken
from gymmesh_sandbox.repeats import CallRepeats, digest_of
from gymmesh_sandbox.requests import Offer, SandboxPlan, plan_of
from gymmesh_sandbox.timers import Timers

_ID_BYTES: Final = 8
_END_S: Final = 60.0
_END_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 1.0
_MOST_REMEMBERED: Final = 1000
_WHY_ENDED: Final = {
    "asked": "its owner ended it",
    "removed": "an operator ended it",
    "shutdown": "the sandbox service was shut down",
}
# What is left of a caller's time for the answer, when it waits for a place.
_ANSWER_PART: Final = 0.1
_LONGEST_ANSWER_S: Final = 1.0

_LOGGER = logging.getLogger("gymmesh.sandbox")


class Sandboxes:
    """The sandboxes of one instance.

    Args:
        name: the service's name.
        instance_id: the instance's id, as callers know it.
        mark: the mark of everything that the backend creates.
        offer: what the instance offers.
        folder: for archives while they arrive.
        relay_to: returns the target of a relay's connections; see SandboxSpec.relay.
    """

    def __init__(
        self,
        name: str,
        instance_id: str,
        *,
        mark: str,
        config: SandboxConfig,
        backend: SandboxBackend,
        offer: Offer,
        timers: Timers,
        places: Places,
        folder: str,
        relay_to: Callable[[sandbox_pb2.Relay], Callable[[], str]],
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self.offer = offer
        self.places = places
        self._mark = mark
        self._config = config
        self._backend = backend
        self._timers = timers
        self._folder = folder
        self._relay_to = relay_to
        self._by_id: dict[str, LiveSandbox] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, tuple[str, str]] = {}  # of the last ones, the cause and why
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._creates = CallRepeats[sandbox_pb2.CreateSandboxResponse](
            "gymmesh.sandbox.v1.SandboxService/CreateSandbox", keeps_errors=False, kept=None
        )
        self._closed = False
        self._empty = asyncio.Event()
        self._running = metrics.SANDBOXES_RUNNING.labels(name)
        self._start_seconds = metrics.SANDBOXES_START_SECONDS.labels(name)
        self._created = metrics.SANDBOXES_CREATED
        # Shown as 0 from the start: a rate misses the first of what appears with it.
        self._created.labels(name, "ready")
        for cause in ("asked", "expired", "lost", "out_of_memory"):
            metrics.SANDBOXES_ENDED.labels(name, cause)
        self._stuck_left = metrics.SANDBOXES_LEFT.labels(name, "stuck")
        for unlabelled in (
            metrics.SANDBOXES_EXEC_SECONDS,
            metrics.SANDBOXES_PROCESSES,
            metrics.SANDBOXES_OUTPUT_DROPPED,
        ):
            unlabelled.labels()

    @property
    def running(self) -> int:
        """How many sandboxes run."""
        return len(self._by_id)

    def get(self, sandbox_id: str) -> LiveSandbox:
        """A running sandbox. Raises SANDBOX_NOT_FOUND."""
        found = self._by_id.get(sandbox_id)
        if found is None:
            cause, why = self._ended.get(sandbox_id, ("", ""))
            raise sandbox_not_found(sandbox_id, self.instance_id, cause, why)
        return found

    def find(self, sandbox_id: str) -> LiveSandbox | None:
        """A running sandbox; None: there is none with this id."""
        return self._by_id.get(sandbox_id)

    def all(self) -> Sequence[LiveSandbox]:
        """All running sandboxes, sorted by id."""
        return [self._by_id[key] for key in sorted(self._by_id)]

    async def create(
        self, request: sandbox_pb2.CreateSandboxRequest, context: CallContext
    ) -> sandbox_pb2.CreateSandboxResponse:
        """Creates a sandbox, unless the request is a repeat."""
        key = owned(context.identity, request.request_id)
        places = PlacesTaken()

        async def act() -> sandbox_pb2.CreateSandboxResponse:
            plan = plan_of(request, self._new_id(), self._mark, self.offer)
            (live,) = await self._start_all([plan], key, context, places)
            return self._answer(live)

        # The places that callers who are gone waited for are for others.
        digest = digest_of(request, without="")
        return await self._creates.run(key, digest, act, may_end=lambda: not places.taken)

    async def fork(
        self,
        source: LiveSandbox,
        request: sandbox_pb2.ForkSandboxRequest,
        snapshot: str,
        context: CallContext,
    ) -> sandbox_pb2.ForkSandboxResponse:
        """Creates sandboxes from a snapshot of one sandbox: all of them, or none."""
        count, most = request.count or 1, self._config.places
        if count > most:
            raise sandbox_limit(
                f"The forks need {count} places, but this instance has only {most}.", most
            )
        plans = [
            source.plan.of_snapshot(self._new_id(), snapshot, request.ttl_s) for _ in range(count)
        ]
        made = await self._start_all(plans, "", context, PlacesTaken())
        return sandbox_pb2.ForkSandboxResponse(sandboxes=[self._answer(live) for live in made])

    def end(self, live: LiveSandbox, cause: str, error: MeshError | None = None) -> None:
        """Ends a sandbox; `wait_ended` returns when nothing of it is left.

        Args:
            cause: for the metrics.
            error: the error of the calls that use the sandbox now; None: SANDBOX_LOST.
        """
        if self._by_id.pop(live.id, None) is None:
            return
        metrics.SANDBOXES_ENDED.labels(self.name, cause).inc()
        self._running.set(len(self._by_id))
        why = _why_ended(live, cause, error)
        self._ended[live.id] = cause, why
        if len(self._ended) > _MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        live.lose(error or sandbox_lost(live.id, cause, why))
        if live.owner:
            self._creates.forget(live.owner, wholly=True)
        work = self._end(live, cause)
        self._ending[live.id] = asyncio.get_running_loop().create_task(work)

    async def wait_ended(self, sandbox_id: str) -> None:
        """Returns when nothing is left of an ending sandbox; at once for any other sandbox."""
        task = self._ending.get(sandbox_id)
        if task is not None:
            await asyncio.wait((task,))

    def start_no_more(self) -> None:
        """Rejects new sandboxes; existing ones continue."""
        self._closed = True
        self.places.refuse(draining(self.name))

    async def until_empty(self) -> None:
        """Returns when no sandbox runs and none is being started."""
        while self._by_id or self.places.taken:
            self._empty.clear()
            await self._empty.wait()

    async def close(self) -> None:
        """Ends all sandboxes."""
        self.start_no_more()
        await cancel_and_wait(*self._creates.running)
        for live in list(self._by_id.values()):
            self.end(live, "shutdown")
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    def _answer(self, live: LiveSandbox) -> sandbox_pb2.CreateSandboxResponse:
        secret, lease = live.leases.lend(live.leases.own, Scope(), 0, self._timers.clock.now())
        return sandbox_pb2.CreateSandboxResponse(
            own_lease=live.leases.own_secret,
            grant=live.grant(secret, lease),
            resources=live.plan.spec.resources,
            user=live.running.user,
            process_id=live.process.id if live.process is not None else "",
        )

    def _new_id(self) -> str:
        return f"sb-{secrets.token_hex(_ID_BYTES)}"

    async def _start_all(
        self,
        plans: Sequence[SandboxPlan],
        owner: str,
        context: CallContext,
        places: PlacesTaken,
    ) -> Sequence[LiveSandbox]:
        """Starts sandboxes concurrently: all of them, or none."""
        try:
            if self._closed:
                raise draining(self.name)
            await self.places.take(len(plans), self._wait_s(context))
            places.taken = True
            return await self._start_in_places(plans, owner)
        except MeshError as error:
            self._created.labels(self.name, error.reason_name).inc(len(plans))
            raise

    async def _start_in_places(
        self, plans: Sequence[SandboxPlan], owner: str
    ) -> Sequence[LiveSandbox]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._start(plan)) for plan in plans]
        try:
            started = await asyncio.gather(*tasks)
            if self._closed:
                raise draining(self.name)
        except BaseException:
            try:
                await to_its_end(self._undo(tasks))
            finally:  # also when it is cancelled once more
                self._give_back(len(plans))
            raise
        made = []
        for plan, running in zip(plans, started, strict=True):
            made.append(self._add(plan, running, owner))
        try:
            await asyncio.gather(*(self._start_process(live) for live in made))
            for live in made:
                if live.id not in self._by_id:
                    raise sandbox_lost(live.id, "the sandbox ended before the sandbox was ready")
        except BaseException:
            for live in made:
                self.end(live, "not_started")
            raise
        self._created.labels(self.name, "ready").inc(len(made))
        return made

    async def _start(self, plan: SandboxPlan) -> RunningSandbox:
        """Lets the backend start a sandbox with its files, within its time limit."""
        began = self._timers.clock.now()
        spec = self._with_relay(plan.spec)
        running: RunningSandbox | None = None
        try:
            async with asyncio.timeout(plan.start_timeout_s) as limit:
                running = await self._backend.create(spec)
                _check_digest(spec, running)
                for file in plan.request.files:
                    await running.place_file(file)
        except BaseException as error:
            if running is not None:
                await to_its_end(self._end_running(running, spec.sandbox_id))
            if isinstance(error, TimeoutError) and limit.expired():
                raise start_timeout(plan.start_timeout_s) from None
            raise
        self._start_seconds.observe(self._timers.clock.now() - began)
        return running

    async def _start_process(self, live: LiveSandbox) -> None:
        limits = live.plan.process_limits
        if limits is not None:
            live.process = await live.start(
                live.plan.request.process, limits, takes_stdin=True, on_forgotten=_nothing
            )

    def _add(self, plan: SandboxPlan, running: RunningSandbox, owner: str) -> LiveSandbox:
        live = self._by_id[plan.spec.sandbox_id] = LiveSandbox(
            plan,
            running,
            service=self.name,
            instance_id=self.instance_id,
            owner=owner,
            config=self._config,
            timers=self._timers,
            folder=self._folder,
            on_stuck=self._stuck,
        )
        self._running.set(len(self._by_id))
        self._watching[live.id] = asyncio.get_running_loop().create_task(self._watch(live))
        self._timers.at(live.leases.own.expires, lambda: self._check_lease(live))
        _LOGGER.info("sandbox %s runs %s", live.id, running.image)
        return live

    def _check_lease(self, live: LiveSandbox) -> None:
        """The own lease has expired, unless it was renewed."""
        if live.id not in self._by_id:
            return
        expires, now = live.leases.own.expires, self._timers.clock.now()
        if expires > now:
            self._timers.at(expires, lambda: self._check_lease(live))
        else:
            self.end(live, "life" if live.ends <= now else "expired")

    async def _watch(self, live: LiveSandbox) -> None:
        try:
            cause = await live.running.wait_lost()
        except MeshError as problem:
            cause = problem.message
        _LOGGER.warning("sandbox %s is lost: %s", live.id, cause)
        if cause == OUT_OF_MEMORY:
            error = sandbox_out_of_memory(live.id, live.plan.spec.resources.memory_bytes)
            self.end(live, "out_of_memory", error)
        else:
            self.end(live, "lost", sandbox_lost(live.id, cause))

    def _stuck(self, live: LiveSandbox) -> None:
        self.end(live, "lost", sandbox_lost(live.id, "a process did not end when it was killed"))

    async def _end(self, live: LiveSandbox, cause: str) -> None:
        try:
            watching = self._watching.pop(live.id)
            if watching is not asyncio.current_task():
                watching.cancel()
            await self._end_running(live.running, live.id)
            await live.let_go()
            _LOGGER.info("sandbox %s ended: %s", live.id, cause)
        finally:
            del self._ending[live.id]
            self._give_back(1)

    async def _end_running(self, running: RunningSandbox, sandbox_id: str) -> None:
        """Ends a sandbox of the backend, which may need several tries."""
        for attempt in range(1, _END_TRIES + 1):
            try:
                async with asyncio.timeout(_END_S):
                    await running.end()
                return
            except Exception:
                _LOGGER.exception("sandbox %s could not be ended (try %d)", sandbox_id, attempt)
            if attempt < _END_TRIES:
                await asyncio.sleep(doubled_s(_FIRST_PAUSE_S, attempt))
        self._stuck_left.inc()

    async def _undo(self, tasks: Sequence[asyncio.Task[RunningSandbox]]) -> None:
        await cancel_and_wait(*tasks)
        done = [task.result() for task in tasks if not task.cancelled() and not task.exception()]
        await asyncio.gather(*(self._end_running(one, "it was not needed") for one in done))

    def _give_back(self, places: int) -> None:
        self.places.release(places)
        self._empty.set()

    def _wait_s(self, context: CallContext) -> float:
        remaining = context.time_remaining()
        answering = min(remaining * _ANSWER_PART, _LONGEST_ANSWER_S)
        return min(remaining - answering, float(self._config.start_timeout_s))

    def _with_relay(self, spec: SandboxSpec) -> SandboxSpec:
        if spec.network.WhichOneof("kind") != "relay":
            return spec
        return replace(spec, relay=self._relay_to(spec.network.relay))


def _why_ended(live: LiveSandbox, cause: str, error: MeshError | None) -> str:
    """The cause as a clause for people."""
    if cause == "life":
        return (
            f"the sandbox's lifetime of {live.plan.spec.resources.life_s} s (resources.life_s) "
            "is over"
        )
    if cause == "expired":
        return f"the sandbox's own lease was not renewed within {live.plan.ttl_s:g} s (ttl_s)"
    if error is not None:
        return error.metadata.get("cause", error.reason_name)
    return _WHY_ENDED.get(cause, cause)


def _check_digest(spec: SandboxSpec, running: RunningSandbox) -> None:
    if spec.image_digest and running.image_digest != spec.image_digest:
        raise image_failed(running.image, "the image's digest differs from the requested digest")


def _nothing() -> None:
    """A process that was started with its sandbox has no request of its own."""
