"""The resource service: one environment with its sessions and its verifier, as the mesh sees it.

Invariant: nothing outlives `close`, which releases sessions, sweeper, threads and the environment's
own resources, in that order.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import DefinitionError, TaskInvalid
from gymmesh_resource.mcp_server.offering import Offering
from gymmesh_resource.registry import check_signatures, make_environment
from gymmesh_resource.serving import (
    CLOSE_S,
    AuditServicer,
    Method,
    ResourceServicer,
    ServedEnvironment,
    VerifyServicer,
    metrics,
    watch,
)
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import check_range
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.service import Service
from gymmesh_runtime.text import shown_traceback
from gymmesh_sandbox_access import SandboxServices, SandboxSpec, SandboxUser

if TYPE_CHECKING:
    from gymmesh_resource.protocols import ProtocolServer

RESOURCE_SERVICE = "gymmesh.resource.v1.ResourceService"
VERIFY_SERVICE = "gymmesh.verify.v1.VerifyService"
AUDIT_SERVICE = "gymmesh.verify.v1.AuditService"
_LONGEST_SWEEP_PAUSE_S = 30.0

_LOGGER = logging.getLogger("gymmesh.resource")


class ResourceService(Service, SandboxUser):
    """Serves one environment.

    `name`: what callers ask for; `instance_id`: this instance's. `environment`: the object, for
    a caller that made it itself; otherwise `config.use` and `config.options` say. `clock`:
    seconds that never go back, for the idle time of sessions.

    Raises ConfigError, in one sentence, for an environment that cannot be used.
    """

    kind = RESOURCE_SERVICE

    def __init__(
        self,
        config: EnvironmentConfig,
        name: str,
        instance_id: str,
        *,
        environment: Environment[Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self._config = config
        self._sweeper: asyncio.Task[None] | None = None
        self._opened = False
        self._end_watch: Callable[[], None] | None = None
        try:
            self.environment = environment or make_environment(config.use, config.options)
            _check(self.environment, config)
            _set_compat(self.environment, config.compat)
            served = ServedEnvironment(self.environment, config, name, instance_id, clock=clock)
        except DefinitionError as error:
            raise ConfigError(str(error), path=f"environments.{name}") from None
        self._models, self._sandboxes = served.models, served.sandboxes
        self._threads = served.threads
        self._examples = served.examples
        self.sessions = served.sessions
        self._offering = Offering(self, config.mcp) if config.mcp is not None else None
        self._servicers: Mapping[str, object] = {
            RESOURCE_SERVICE: ResourceServicer(served),
            VERIFY_SERVICE: VerifyServicer(served),
            AUDIT_SERVICE: AuditServicer(served),
        }
        self._protocols = _protocols(self, served) if config.protocols is not None else None

    @property
    def model_names(self) -> list[str]:
        """The names in the mesh of the models that it calls, sorted."""
        return self._models.names

    @property
    def sandboxes(self) -> SandboxServices:
        """The sandbox services that its environment uses."""
        return self._sandboxes

    def lent_spec(self, role: str) -> SandboxSpec | None:
        """The sandbox of a role that it lends to agents, that of its first example task where tasks
        decide; None: it lends none, or no task is known.
        """
        environment = self.environment
        specs: Mapping[str, SandboxSpec] = environment.declared_sandboxes()
        if type(environment).sandbox_specs is not Environment.sandbox_specs:
            specs = {}
            with contextlib.suppress(TaskInvalid):  # reported where examples are checked
                specs = environment.sandbox_specs(Task(self._examples[0])) if self._examples else {}
        spec = specs.get(role)
        return spec if spec is not None and spec.lent else None

    @property
    def meta(self) -> Mapping[str, str]:
        """What the registry lists with it: under `mcp` the URL of its tools over MCP, under
        `protocols` that of other frameworks' protocols, and as `capacity` the sessions that may be
        open, where there is a limit.
        """
        limit = self._config.session_limit
        told = {
            "mcp": self._offering.url if self._offering is not None else "",
            "protocols": self._protocols.url if self._protocols is not None else "",
            "capacity": str(limit) if limit else "",
        }
        return {key: value for key, value in told.items() if value}

    def servicers(self) -> Mapping[str, object]:
        """The servicers by the full name of their gRPC service."""
        return self._servicers

    async def open(self, directory: PeerDirectory) -> None:
        """Opens the environment and starts the sweeper; its models and sandbox services must be
        there.

        Raises ConfigError.
        """
        await self._models.open(directory)
        await self._sandboxes.open(directory)
        try:
            if type(self.environment).open is not Environment.open:
                await self._method(self.environment.open, self.environment.open_timeout_s).call()
        except Exception as error:
            _LOGGER.debug("environment %s did not open", self.name, exc_info=True)
            raise ConfigError(
                f"the environment did not open: {type(error).__name__}: {error}",
                path=f"environments.{self.name}",
            ) from error
        self._opened = True
        self._end_watch = watch(self.environment, self.name)
        if self._config.session_idle_s:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())
        if self._offering is not None:
            await self._offering.open()
        if self._protocols is not None:
            await self._protocols.open()

    async def let_go(self) -> None:
        """Refuses new sessions, and waits until none is open."""
        self.sessions.open_no_more()
        await self.sessions.until_empty()

    async def close(self) -> None:
        """Closes all sessions and the environment; harmless when called twice."""
        if self._protocols is not None:
            await self._protocols.close()
        if self._offering is not None:
            await self._offering.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait((self._sweeper,), timeout=CLOSE_S)
            self._sweeper = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.sessions.close_all()
        if self._opened:
            self._opened = False
            if self._end_watch is not None:
                self._end_watch()
            try:
                if type(self.environment).close is not Environment.close:
                    await self._method(self.environment.close, CLOSE_S).call()
            except Exception as error:
                shown = shown_traceback(error)
                _LOGGER.error("environment %s failed while it closed", self.name, exc_info=shown)
            await self.environment.close_processes()
        await self._sandboxes.close()
        self._threads.close()

    def _method(self, function: Callable[..., Any], limit_s: float) -> Method:
        return Method(function, limit_s, environment=self.name, threads=self._threads)

    async def _sweep_forever(self) -> None:
        pause = min(_LONGEST_SWEEP_PAUSE_S, self._config.session_idle_s / 4)
        count = metrics.SESSIONS_SWEPT.labels(self.name)  # shown as 0, or a rate misses the first
        while True:
            await asyncio.sleep(pause)
            swept = await self.sessions.sweep()
            if swept:
                count.inc(swept)
                _LOGGER.warning("environment %s: %d idle sessions closed", self.name, swept)


def _protocols(service: ResourceService, served: ServedEnvironment) -> ProtocolServer:
    # Late, because few are served with other protocols, and aiohttp takes its time to import.
    from gymmesh_resource.protocols import ProtocolServer

    return ProtocolServer(service, served)


def _set_compat(environment: Environment[Any], compat: str) -> None:
    """Have the configuration's reference judge; empty: what the object says. Raises."""
    known = environment.references
    if compat and compat not in known:
        kind = type(environment).__name__
        offered = (
            f"the reference verifiers of this class are {', '.join(known)}"
            if known
            else "this class has no reference verifiers"
        )
        raise DefinitionError(f"{kind} cannot judge as {compat!r} does; {offered}.")
    if compat:
        environment.compat = compat


def _check(environment: Environment[Any], config: EnvironmentConfig) -> None:
    kind = type(environment)
    judges = (kind.verify, kind.verify_group) != (Environment.verify, Environment.verify_group)
    if not (judges or environment.reward_functions() or config.rewards):
        raise DefinitionError(
            f"{kind.__name__} has no verifier. Define verify, verify_group or a method marked "
            "@reward."
        )
    check_signatures(environment)
    if kind.state is not None and not callable(kind.state):
        raise DefinitionError(
            f"{kind.__name__}.state is one object that all sessions would share. Set state to a "
            "class or function that makes a new object for each session, such as a dataclass."
        )
    for check in (kind.check_task, kind.tasks):
        if inspect.iscoroutinefunction(check):
            raise DefinitionError(
                f"{check.__qualname__} is async, but gymmesh does not await this method. Write a "
                "plain def."
            )
    check_range(kind.__name__, environment.reward_range)
