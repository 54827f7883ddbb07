"""The agent service: takes requests, runs attempts, streams their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.attempt import Attempt, Workplace
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_agent.collect.desk import CollectDesk
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.events import EventQueue, Send
from gymmesh_agent.group import judge_group
from gymmesh_agent.measures import RolloutMetrics
from gymmesh_agent.model_caller import Models
from gymmesh_agent.registry import find_agent
from gymmesh_agent.session import Environments
from gymmesh_agent.terms import Readings
from gymmesh_agent.traced import attempt_class
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.names import check_name
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.timers import running_wheel

AGENT_SERVICE = "gymmesh.agent.v1.AgentService"
_CLOSE_S = 4.0


class AgentService:
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
        self._place: Workplace | None = None
        self._attempt = Attempt
        self._running: dict[tuple[str, int], Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._collect = config.collect or CollectConfig()
        self._desk = CollectDesk(self, self._collect, instance_id)

    @property
    def meta(self) -> Mapping[str, str]:
        """What the registry tells of it: the attempts that it runs side by side, as `capacity`."""
        return {"capacity": str(self._collect.capacity)}

    def servicers(self) -> Mapping[str, object]:
        """AgentService."""
        return {AGENT_SERVICE: self}

    async def open(self, directory: PeerDirectory) -> None:
        """Find the agent's class and make its one instance.

        Raises:
            ConfigError: there is no such agent, or it refuses its options.
        """
        try:
            agent = find_agent(self._config.use)(self._config.options)
        except ValueError as error:
            raise ConfigError(str(error), path=f"agents.{self.name}") from None
        self._attempt = attempt_class()
        prompt = self._config.system_prompt
        system = [new_message("system", prompt)] if prompt is not None else []
        config = self._config
        preamble = (*system, *config.example_items())
        self._place = Workplace(
            config=config,
            agent=agent,
            name=self.name,
            instance_id=self.instance_id,
            directory=directory,
            environments=Environments(directory, config.tool_timeout_s, config.verify_timeout_s),
            models=Models(directory, config.model_timeout_s),
            preamble=preamble,
            background=self._in_background,
            over=self._over,
            left=self._tasks.discard,
            metrics=RolloutMetrics(self.name),
            readings=Readings(config, preamble),
            wheel=running_wheel(),
        )

    def drain(self, grace_s: float) -> None:
        """Start nothing more for collectors, and let what runs for them end within the grace."""
        self._desk.drain(grace_s)

    async def close(self) -> None:
        """Stop all attempts and close their sessions, within seconds."""
        self._draining = True
        await self._desk.close()
        for attempt in list(self._running.values()):
            attempt.stop()
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=_CLOSE_S)
            for task in pending:
                task.cancel()

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext
    ) -> AsyncIterator[agent_pb2.RunRolloutResponse]:
        """Run one attempt and stream its events; see agent.proto."""
        queue = EventQueue()
        attempt = self.start(request, context, queue.put)
        attempt.over.add_done_callback(lambda _: queue.close())
        try:
            while (event := await queue.next()) is not None:
                yield agent_pb2.RunRolloutResponse(event=event)
            if attempt.stopped:
                raise self._shutting_down()
        finally:
            # When the reader is gone, or the deadline has passed, the attempt ends, and its
            # session is closed.
            attempt.stop()

    def push_RunRollout(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext, send: Send
    ) -> Coroutine[Any, Any, None]:
        """RunRollout for callers in this process: events are handed to `send` as they come."""
        attempt = self.start(request, context, send)
        # The attempt's own clock ends it before the deadline, whatever it is at.
        context.deadline = None
        return self._end_of(attempt)

    async def _end_of(self, attempt: Attempt) -> None:
        """Until it is over; it is stopped when nobody waits for that any more."""
        try:
            await attempt.over
        except BaseException:
            attempt.stop()
            raise
        if attempt.stopped:
            raise self._shutting_down()

    async def Collect(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], context: CallContext
    ) -> AsyncIterator[agent_pb2.CollectResponse | bytes]:
        """Run many attempts over one stream; see agent.proto."""
        self._opened()
        async with aclosing(self._desk.serve(requests, context.identity)) as responses:
            async for response in responses:
                yield response

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, context: CallContext
    ) -> agent_pb2.JudgeGroupResponse:
        """Have a task's repeats judged together by its environment."""
        place = self._opened()
        return await judge_group(place.directory, request, context, place.config.verify_timeout_s)

    async def GetAgent(
        self, request: agent_pb2.GetAgentRequest, context: CallContext
    ) -> agent_pb2.GetAgentResponse:
        """Say what the agent is."""
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

    def start(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext, send: Send
    ) -> Attempt:
        """Begin an attempt. Raises MeshError when there is no rollout to speak of."""
        place = self._opened()
        task = request.task
        environment = task.environment
        check_name("rollout_id", request.rollout_id)
        check_name("run_id", request.run_id)
        check_name("task.environment", environment)
        check_name("task.agent", task.agent)
        if not environment:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
                "task.environment is not set; name the environment that judges the task",
                metadata={"field": "task.environment", "method": context.method},
            )
        agent = task.agent
        if agent and agent != self.name:
            raise MeshError(
                errors_pb2.ERROR_REASON_SERVICE_NOT_FOUND,
                f"the task asks for agent '{agent}', this is '{self.name}'",
                metadata={"service": AGENT_SERVICE, "name": agent},
            )
        attempt = self._attempt(place, request, task, environment, context.deadline, send)
        key = attempt.key
        if self._running.setdefault(key, attempt) is not attempt:
            rollout_id, number = key
            raise MeshError(
                errors_pb2.ERROR_REASON_ROLLOUT_EXISTS,
                f"attempt {number} of rollout {rollout_id} is running here already",
                metadata={"rollout_id": rollout_id, "attempt": str(number)},
            )
        self._tasks.add(attempt.start())
        return attempt

    def _over(self, attempt: Attempt) -> None:
        del self._running[attempt.key]

    def _shutting_down(self) -> MeshError:
        return MeshError(errors_pb2.ERROR_REASON_DRAINING, f"agent '{self.name}' is shutting down")

    def _opened(self) -> Workplace:
        if self._draining or self._place is None:
            raise MeshError(errors_pb2.ERROR_REASON_DRAINING, f"agent '{self.name}' is not open")
        return self._place

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
