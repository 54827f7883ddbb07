"""The agent service: receives requests, runs attempts, streams their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.agent import Agent, find_agent
from gymmesh_agent.attempt import AgentContext, RunningAttempt
from gymmesh_agent.collect_stream import CollectConfig, CollectServer, draining
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.environment import Environments
from gymmesh_agent.events import EventQueue, EventSink
from gymmesh_agent.gateway import GatewayConfig
from gymmesh_agent.gateway.gateway import ADDRESS_KEY
from gymmesh_agent.gateway.server import GatewayServer
from gymmesh_agent.model import ModelServices
from gymmesh_agent.plan import RolloutPlans
from gymmesh_agent.telemetry import RolloutMetrics
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.names import check_name
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.service import Service
from gymmesh_runtime.text import place_of
from gymmesh_runtime.text.authors_code import described
from gymmesh_sandbox_access import SandboxServices, SandboxUser

AGENT_SERVICE = "gymmesh.agent.v1.AgentService"
_CLOSE_S = 4.0


class AgentService(Service, SandboxUser):
    """One agent of the mesh: the runtime's Service, and the servicer of AgentService.

    Args:
        config: the agent's configuration.
        name: its name in the mesh.
        instance_id: this instance's id.
    """

    kind = AGENT_SERVICE

    def __init__(self, config: AgentConfig, name: str, instance_id: str) -> None:
        self.name = name
        self.instance_id = instance_id
        self._config = config
        self._context: AgentContext | None = None
        self._running: dict[tuple[str, int], RunningAttempt] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = False
        self._collect = config.collect or CollectConfig()
        self._collectors = CollectServer(self, self._collect, instance_id)
        self._gateway = GatewayServer(
            config.gateway or GatewayConfig(),
            name,
            config.models.get("policy", "policy"),
            self._gateway_opened,
        )
        self._meta_changed: Callable[[], None] = lambda: None

    @cached_property
    def _class(self) -> type[Agent]:
        """The agent's class. Raises ConfigError."""
        try:
            return find_agent(self._config.use)
        except ValueError as error:
            raise ConfigError(str(error), path=f"agents.{self.name}") from None

    def make_agent(self) -> Agent:
        """A new agent with the configuration's options.

        Raises:
            ConfigError: there is no such agent, or it rejects its options.
        """
        kind = self._class
        try:
            return kind(self._config.options)
        except ValueError as error:
            raise ConfigError(str(error), path=f"agents.{self.name}") from None
        except BaseException as error:
            at = f" at {place}" if (place := place_of(error)) else ""
            cause = f"the agent's class cannot be created: {described(error)}{at}"
            raise ConfigError(cause, path=f"agents.{self.name}") from error

    @cached_property
    def sandboxes(self) -> SandboxServices:
        """The sandbox services at which the agent itself opens sandboxes. Raises ConfigError."""
        used = {spec.service for spec in self._class.sandboxes.values()}
        return SandboxServices("agent", self.name, used, self._config.sandboxes)

    @property
    def meta(self) -> Mapping[str, str]:
        """For the registry: the number of attempts that it runs concurrently, as `capacity`, and
        the address of its gateway when that is open.
        """
        meta = {"capacity": str(self._collect.capacity)}
        if self._gateway.address:
            meta[ADDRESS_KEY] = self._gateway.reached_at(self._gateway.host)
        return meta

    def servicers(self) -> Mapping[str, object]:
        """The servicer AgentService."""
        return {AGENT_SERVICE: self}

    async def open(self, directory: PeerDirectory) -> None:
        """Find the agent's class and create its one instance. Its sandbox services must be serving.

        Raises:
            ConfigError: there is no such agent, it rejects its options, or it scores and its model
                can't.
        """
        await self.sandboxes.open(directory)
        agent = self.make_agent()
        models = ModelServices(directory, self._config.model_timeout_s)
        if agent.scores:
            await self._check_scoring(models)
        config = self._config
        prompt = config.system_prompt
        system = [new_message("system", prompt)] if prompt is not None else []
        preamble = (*system, *config.example_items())
        self._context = AgentContext(
            agent=agent,
            name=self.name,
            instance_id=self.instance_id,
            plans=RolloutPlans(config, preamble),
            environments=Environments(
                directory,
                config.tool_timeout_s,
                config.verify_timeout_s,
                agent=self.name,
                agent_instance_id=self.instance_id,
                wants_choices=agent.scores,
            ),
            models=models,
            sandboxes=self.sandboxes,
            preamble_items=len(preamble),
            metrics=RolloutMetrics(self.name),
            background=self._in_background,
            gateway=self._gateway,
        )
        if agent.runs_programs:
            await self._gateway.open()

    def served_as(self, instance: discovery_pb2.Instance) -> None:
        """Sets the host by which others connect to this machine; they reach the gateway there,
        too.
        """
        self._gateway.host = instance.address.rpartition(":")[0].strip("[]")

    def follow_meta(self, changed: Callable[[], None]) -> None:
        """Calls `changed` when the gateway opens. If it is already open, calls it now, because
        the host is known.
        """
        self._meta_changed = changed
        if self._gateway.address:
            changed()

    def drain(self, seconds: float) -> None:
        """Start no further attempts for collectors; running attempts may end within the grace
        period.
        """
        self._collectors.drain(seconds)

    async def close(self) -> None:
        """Stop all attempts and close their sessions, within seconds."""
        self._draining = True
        await self._collectors.close()
        for attempt in list(self._running.values()):
            attempt.stop()
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=_CLOSE_S)
            for task in pending:
                task.cancel()
        await self._gateway.close()
        if self._context is not None:
            await self._context.sandboxes.close()

    async def run_rollout(
        self,
        request: agent_pb2.RunRolloutRequest,
        context: CallContext,
        sink: EventSink,
        waited_s: float = 0.0,
    ) -> None:
        """Run one attempt, whose events go to `sink`, with the terminal event last.

        If this call is cancelled, the attempt ends without a terminal event, and its session is
        closed.

        Args:
            waited_s: seconds that the attempt waited for a place, for the metrics.

        Raises:
            MeshError: the request cannot be run at all, or the agent is shutting down.
        """
        agent_context, task = self._opened(), request.task
        check_name("rollout_id", request.rollout_id)
        check_name("run_id", request.run_id)
        check_name("task.environment", task.environment)
        check_name("task.agent", task.agent)
        if not task.environment:
            raise _no_environment("task.environment", context.method)
        if task.agent and task.agent != self.name:
            raise MeshError(
                errors_pb2.ERROR_REASON_SERVICE_NOT_FOUND,
                f"the task requests agent '{task.agent}', but this is agent '{self.name}'",
                metadata={"service": AGENT_SERVICE, "name": task.agent},
            )
        attempt = RunningAttempt(agent_context, request, context.deadline, sink, waited_s)
        rollout_id, number = attempt.key
        if attempt.key in self._running:
            raise MeshError(
                errors_pb2.ERROR_REASON_ROLLOUT_EXISTS,
                f"attempt {number} of rollout {rollout_id} is already running on this agent",
                metadata={"rollout_id": rollout_id, "attempt": str(number)},
            )
        self._running[attempt.key] = attempt
        try:
            await attempt.run()
        finally:
            del self._running[attempt.key]
        if attempt.stopped:
            raise draining(self.name)

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext
    ) -> AsyncIterator[agent_pb2.RunRolloutResponse]:
        """Run one attempt and stream its events; see agent.proto."""
        queue = EventQueue()
        running = self._in_background(self.run_rollout(request, context, queue.put))
        running.add_done_callback(lambda _: queue.close())
        try:
            while (event := await queue.next()) is not None:
                yield agent_pb2.RunRolloutResponse(event=event)
            await running  # raises what ended it
        finally:
            # The reader may be gone, or the deadline have passed.
            running.cancel()

    async def Collect(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], context: CallContext
    ) -> AsyncIterator[agent_pb2.CollectResponse]:
        """Run many attempts over one stream; see agent.proto."""
        self._opened()
        async with aclosing(self._collectors.serve(requests, context.identity)) as responses:
            async for response in responses:
                yield response

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, context: CallContext
    ) -> agent_pb2.JudgeGroupResponse:
        """Let a task's environment judge its repeats together."""
        environments = self._opened().environments
        name = request.group.task.environment
        if not name:
            raise _no_environment("group.task.environment", context.method)
        check_name("group.task.environment", name)
        reply = await environments.judge_group(request.group, context)
        return agent_pb2.JudgeGroupResponse(verdicts=reply.verdicts)

    async def GetAgent(
        self, request: agent_pb2.GetAgentRequest, context: CallContext
    ) -> agent_pb2.GetAgentResponse:
        """The agent's description."""
        agent = self._opened().agent
        return agent_pb2.GetAgentResponse(
            name=self.name,
            version=agent.version,
            description=agent.description,
            model_roles=agent.roles,
            collect=True,
            capacity=self._collect.capacity,
            instance_id=self.instance_id,
            contract_version=CONTRACT_VERSION,
            default_environment=self._config.default_environment,
        )

    async def _check_scoring(self, models: ModelServices) -> None:
        """Raises ConfigError if the policy can't score choices."""
        try:
            await models.check_scoring(self._config.models.get("policy", "policy"))
        except MeshError as error:
            raise ConfigError(error.message, path=f"agents.{self.name}.use") from None

    def _gateway_opened(self) -> None:
        self._meta_changed()

    def _opened(self) -> AgentContext:
        if self._draining or self._context is None:
            raise MeshError(
                errors_pb2.ERROR_REASON_DRAINING,
                f"agent '{self.name}' is not open yet or is shutting down",
            )
        return self._context

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _no_environment(field: str, method: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
        f"{field} is not set; set this field to the environment that judges the task",
        metadata={"field": field, "method": method},
    )
