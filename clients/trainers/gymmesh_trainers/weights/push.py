"""Loads new weights on every endpoint, and announces them once all have them."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal, TypeVar

import aiohttp

from gymmesh_client import UserError
from gymmesh_runtime.security import SecurityConfig
from gymmesh_trainers.weights.names import adapter_name, check_folder, older_adapters
from gymmesh_trainers.weights.outcome import EndpointOutcome, PushFailed, WeightsPush
from gymmesh_trainers.weights.servers import (
    EndpointFailed,
    InferenceServer,
    WeightsEndpoint,
    server_of,
)
from gymmesh_trainers.weights.services import (
    PolicyServices,
    ServicesFailed,
    model_services,
)

T = TypeVar("T")

InFlight = Literal["continue", "abort"]
"""What answers in flight do when weights change: go on, or end and begin again."""

Act = Callable[[InferenceServer, EndpointOutcome], Awaitable[None]]
"""One step at one endpoint."""

_MOST_S: Final = 3600.0
_CLEAN_UP_S: Final = 30.0
_DRAIN_S: Final = 0.02
_AGAIN_S: Final = 0.25


async def push_weights(
    folder: Path | str,
    version: int,
    *,
    endpoints: Sequence[WeightsEndpoint],
    services: PolicyServices,
    aliases: Sequence[str] = (),
    adapter: str = "",
    in_flight: InFlight = "continue",
    folder_there: str = "",
    timeout_s: float = 600.0,
    unload_wait_s: float = 0.0,
) -> WeightsPush:
    """Load weights on every endpoint and then announce their version to the model services.

    Full weights: the endpoints pause, load, and sample again once the version is announced. An
    adapter: the endpoints load `ADAPTER@VERSION` beside older versions. Calls that begin after the
    announcement use the new version. Older versions are unloaded when no call uses them.

    Args:
        folder: a folder of safetensors as Hugging Face saves them: of a model or a PEFT adapter.
        version: the new version, higher than the current one. To repeat a failed push, pass the
            same version again.
        endpoints: all servers of the policy.
        services: all model services that call these servers.
        aliases: other URLs by which model services call these servers, such as a load balancer's.
        adapter: the adapter's name, without a version; empty: full weights.
        in_flight: what happens to answers in flight. `continue`: they continue, with full weights
            on the new weights, with an adapter on the adapter that they named. `abort`: the servers
            end them, and the model service continues them from their tokens with the new weights. A
            backend that can't continue an answer samples it again.
        folder_there: the folder's path on the endpoints' machines; empty: the same path.
        timeout_s: seconds for the whole push, at most 3,600.
        unload_wait_s: seconds to wait for calls that use older adapters. Adapters that are still
            used then are unloaded by the next push.

    Raises:
        PushFailed: an endpoint or model service lacks the weights. The version is announced only
            after all endpoints have loaded it. Endpoints that may have other weights than announced
            stay paused until a push of the same or a later version succeeds.
        UserError: an argument or the folder is invalid; no server was changed.
    """
    if type(version) is not int or not 0 <= version < 2**64:
        raise UserError(f"version: must be a whole number of at least 0, not {version!r}")
    if not endpoints:
        raise UserError("endpoints: is empty; name the servers to load the weights on")
    if not len(services):
        raise UserError("services: is empty; name the model services that get the new version")
    if in_flight not in ("continue", "abort"):
        raise UserError(f"in_flight: must be 'continue' or 'abort', not {in_flight!r}")
    if not 0 < timeout_s <= _MOST_S:
        raise UserError(f"timeout_s: must be above 0 and at most {_MOST_S:g} seconds")
    if not 0 <= unload_wait_s < math.inf:
        raise UserError("unload_wait_s: must not be negative")
    name = adapter_name(adapter, version) if adapter else ""
    path = Path(folder).absolute()
    await asyncio.to_thread(check_folder, path, is_adapter=bool(adapter))
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        job = _Push(
            servers=[server_of(http, one) for one in endpoints],
            services=services,
            urls=[*(one.root for one in endpoints), *aliases],
            folder=folder_there or str(path),
            push=WeightsPush(version, name, [EndpointOutcome(one.root) for one in endpoints]),
            aborts=in_flight == "abort",
            deadline=monotonic() + timeout_s,
        )
        if not adapter:
            return await _push_full(job)
        await _push_adapter(job)
        await _unload_older(job, adapter, unload_wait_s)
        return job.push


async def pushed(
    folder: Path,
    version: int,
    *,
    urls: Sequence[str],
    kind: str,
    api_key: str,
    addresses: Sequence[str],
    security: SecurityConfig | None,
    **options: Any,
) -> WeightsPush:
    """`push_weights` for servers of one kind, and for model services at addresses.

    options: further arguments of `push_weights`.
    """
    endpoints = [WeightsEndpoint(url, kind, api_key) for url in urls]  # type: ignore[arg-type] # checked there
    async with model_services(addresses, security) as services:
        return await push_weights(
            folder, version, endpoints=endpoints, services=services, **options
        )


@dataclass(slots=True)
class _Push:
    """One push. urls: of the servers, with aliases. deadline: monotonic seconds."""

    servers: list[InferenceServer]
    services: PolicyServices
    urls: Sequence[str]
    folder: str
    push: WeightsPush
    aborts: bool
    deadline: float

    def left(self) -> float:
        return max(0.001, self.deadline - monotonic())

    async def on_all(
        self,
        step: str,
        act: Act,
        timeout_s: float = 0.0,
    ) -> None:
        """Has every endpoint do something at once. Raises PushFailed once all have ended.

        timeout_s: seconds for it; 0: what is left of the job's time.
        """

        async def one(server: InferenceServer, outcome: EndpointOutcome) -> None:
            outcome.cause = ""
            try:
                async with asyncio.timeout(timeout_s or self.left()):
                    await act(server, outcome)
            except EndpointFailed as error:
                outcome.cause = str(error)
            except TimeoutError:
                outcome.cause = "the push timed out; push again with a larger timeout_s"

        pairs = zip(self.servers, self.push.endpoints, strict=True)
        await asyncio.gather(*(one(server, outcome) for server, outcome in pairs))
        if any(outcome.cause for outcome in self.push.endpoints):
            raise PushFailed(self.push, step)

    async def told(self, step: str, telling: Awaitable[T]) -> T:
        """What model services say. Raises PushFailed where one refuses, with those that did not."""
        try:
            return await telling
        except ServicesFailed as error:
            if step == "announce":
                self.push.announced = error.done
            raise PushFailed(self.push, step, str(error)) from None

    async def hold(self) -> None:
        """Calls wait for the new weights, as long as the push may take. Raises PushFailed, too,
        if a model service calls a server that is not among the endpoints.
        """
        version, adapter = self.push.version, self.push.adapter
        await self.told("check", self.services.check(version, adapter))
        # Calls need not wait for an adapter beside the current one: 0 only compares the servers.
        seconds = self.left() if not adapter or self.aborts else 0
        await self.told("check", self.services.hold(version, adapter, seconds, self.urls))

    async def drain(self) -> None:
        """Ends all answers, until none of them is at an endpoint: also those of calls that were
        on their way when the endpoints ended the others.
        """

        async def abort(server: InferenceServer, outcome: EndpointOutcome) -> None:
            await server.abort_all()

        pause_s = _DRAIN_S
        while True:
            await self.on_all("abort", abort)
            left = await self.told("abort", self.services.calls_in_flight())
            if not left:
                return
            if monotonic() + pause_s > self.deadline:
                raise PushFailed(
                    self.push,
                    "abort",
                    f"some calls did not end in time (number of calls: {left}). Push "
                    "again with a larger timeout_s",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S)

    async def announce(self) -> None:
        push = self.push
        telling = self.services.announce(push.version, push.adapter, self.urls)
        push.announced = await self.told("announce", telling)

    async def undo(self, act: Act) -> None:
        """Takes back what was done to the endpoints, and has calls wait no more. What fails of
        it shows in the endpoints' outcomes; the error that led here is raised by the caller.
        """
        causes = [one.cause for one in self.push.endpoints]
        with contextlib.suppress(PushFailed):
            await self.on_all("undo", act, _CLEAN_UP_S)
        for one, cause in zip(self.push.endpoints, causes, strict=True):
            one.cause = "; ".join(filter(None, (cause, one.cause)))
        if not self.push.adapter or self.aborts:
            with contextlib.suppress(ServicesFailed):  # the wait ends by itself
                await self.services.hold(self.push.version, self.push.adapter, 0)


async def _push_full(job: _Push) -> WeightsPush:
    version = job.push.version

    async def pause(server: InferenceServer, outcome: EndpointOutcome) -> None:
        outcome.is_paused = True  # if it fails, it may be all the same
        try:
            await server.pause(aborts=job.aborts)
        except EndpointFailed as error:
            outcome.is_paused = not error.unreached
            raise

    async def resume(server: InferenceServer, outcome: EndpointOutcome) -> None:
        if outcome.is_paused:
            await server.resume()
            outcome.is_paused = False

    async def load(server: InferenceServer, outcome: EndpointOutcome) -> None:
        begun = monotonic()
        outcome.state = "unknown"
        await server.load(job.folder, version, job.left())
        outcome.state, outcome.seconds = "loaded", monotonic() - begun

    try:
        await job.hold()
        await job.on_all("pause", pause)
        if job.aborts:
            await job.drain()
    except BaseException:
        await asyncio.shield(job.undo(resume))
        raise
    # From here on an endpoint may have other weights than announced: it stays paused.
    await job.on_all("load", load)
    await job.announce()
    await job.on_all("resume", resume, _CLEAN_UP_S)
    return job.push


async def _push_adapter(job: _Push) -> None:
    name = job.push.adapter

    async def load(server: InferenceServer, outcome: EndpointOutcome) -> None:
        begun = monotonic()
        outcome.state = "unknown"
        try:
            await server.load_adapter(name, job.folder, job.left())
        except EndpointFailed as error:
            if error.unreached:
                outcome.state = "unchanged"
            raise
        outcome.state, outcome.seconds = "loaded", monotonic() - begun

    async def unload(server: InferenceServer, outcome: EndpointOutcome) -> None:
        if outcome.state != "unchanged":
            await server.unload_adapter(name)
            outcome.state = "unchanged"

    try:
        await job.hold()
        await job.on_all("load", load)
        if job.aborts:
            await job.drain()
    except BaseException:
        await asyncio.shield(job.undo(unload))
        raise
    await job.announce()


async def _unload_older(job: _Push, name: str, wait_s: float) -> None:
    """Unloads other versions of the adapter from all endpoints, those without calls. What fails of
    it is left for the next push: the new weights are in force.
    """
    push, gone = job.push, set[str]()
    stop = monotonic() + wait_s
    while True:
        try:
            in_use = await job.services.adapters_in_use()
        except ServicesFailed:
            in_use = None  # not known, so all may be
        busy = set[str]()
        for server in job.servers:
            try:
                loaded = await server.adapters()
                free, used = older_adapters(
                    loaded, name, push.version, loaded if in_use is None else in_use
                )
                busy.update(used)
                for one in free:
                    await server.unload_adapter(one)
                    gone.add(one)
            except EndpointFailed:
                continue
        push.unloaded, push.in_use = sorted(gone - busy), sorted(busy)
        if not busy or monotonic() >= stop:
            return
        await asyncio.sleep(_AGAIN_S)
