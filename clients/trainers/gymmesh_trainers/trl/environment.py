"""TRL: `environment_factory` of GRPOTrainer.

    with TrlEnvironments(environment, tasks, tokenizer) as environments:
        trainer = GRPOTrainer(
            model, environment_factory=environments, reward_funcs=environments.reward,
            train_dataset=Dataset.from_list(environments.rows), processing_class=tokenizer, …
        )

TRL runs the loop itself: it samples, reads the tool calls and calls the methods of an object for
each rollout. Here that object is a session in an environment of gymmesh, in this process or at an
address, and the reward is the environment's verdict on the whole conversation. TrlRollouts
(rollouts.py) has room for more: turns of the environment, groups that are judged together, exact
tokens from gymmesh's own loop. Interface: TRL 1.16, `trl.GRPOTrainer(environment_factory=)`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.environment import Environments
from gymmesh_agent.plan import AttemptId
from gymmesh_client import TaskDefaults, UserError
from gymmesh_client.collector import repeat_seed
from gymmesh_mesh.verifying import RESOURCE
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import SecurityConfig
from gymmesh_trainers.hooks import first_repeat, rank_of_process
from gymmesh_trainers.trainer_collector import (
    LoopThread,
    MeshPlace,
    TaskLike,
    messages_of,
    open_environment,
)
from gymmesh_trainers.trl.episode import Episode, EpisodeOutcome
from gymmesh_trainers.trl.rollouts import plain_prompt
from gymmesh_trainers.trl.tools import schema_of, tool_method, unsaid

_ASK_S: Final = 30.0
_log = logging.getLogger("gymmesh.trainers")


class TrlEnvironment:
    """The object that TRL calls for one rollout at a time: `reset`, and a method for each tool.

    TRL treats every public method as a tool, so the object has no other public methods; `episode`
    is a property.
    """

    def __init__(self, begin: Callable[[Mapping[str, Any]], tuple[Episode, str | None]]) -> None:
        self._begin = begin
        self._episode: Episode | None = None

    @property
    def episode(self) -> Episode | None:
        """The rollout since the last `reset`."""
        return self._episode

    def reset(self, **row: Any) -> str | None:
        """Begin the rollout of a row. Returns the environment's first message, or None."""
        self._episode, said = self._begin(row)
        return said


class TrlEnvironments:
    """An `environment_factory`, with the rows and the reward function that belong to it.

    For several environments, create one `TrlEnvironments` for each. Give TRL a dictionary of them
    by `name`, the rows of all, and the reward functions of all. Each function returns None for
    rollouts of the other environments.

    Args:
        place: the environment (an object, a class, a name, `file.py:Class`, a configuration), or
            the addresses of resource services (`HOST:PORT`, several, `consul://…`).
        tasks: rows, `Task`s or a task file; all are read.
        tokenizer: the trainer's tokenizer. It detects completions that were cut short.
        environment: the environment's name, if the place has several.
        call_s: time limit of opening a session and of a tool call, in seconds.
        verify_s: time limit of a verdict, in seconds.
        security: certificates and token for remote services.

    Attributes:
        name: the environment's name.
        rows: the rows of the trainer's dataset: prompt, task_id and environment of each task.
        outcomes: the outcomes of the last batch, in its order, for inspection.
        counts: rollouts, failed, unscored, parts_left_out (parts of tool answers that are not text)
            and after_done (messages after the end of the episode, which are not judged).
        unsaid: for each tool, the parts of its schema that Python's type hints can't express.

    Raises:
        UserError: a task is invalid, or TRL can't represent the environment.
        ConfigError, MeshError: the environment cannot be opened.
    """

    def __init__(
        self,
        place: MeshPlace,
        tasks: Sequence[TaskLike] | Path | str,
        tokenizer: Any,
        *,
        environment: str = "",
        call_s: float = 120.0,
        verify_s: float = 600.0,
        security: SecurityConfig | None = None,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.outcomes: list[EpisodeOutcome] = []
        self.counts: Counter[str] = Counter()
        self.unsaid: dict[str, list[str]] = {}
        self._stops = {tokenizer.eos_token_id, tokenizer.pad_token_id}
        self._tasks: dict[str, pb.Task] = {}
        self._times: Counter[str] = Counter()
        # The repeats of a task may be spread over processes.
        self._first_repeat = first_repeat(rank_of_process())
        self._open: list[Episode] = []
        self._run_id = uuid.uuid4().hex
        self._stack = AsyncExitStack()
        self._thread: LoopThread | None = LoopThread()
        self._thread.start()
        try:
            opening = self._opened(place, environment, security)
            directory, self.name, tools = self._thread.run(opening)
            self._environments = Environments(
                directory, call_s, verify_s, agent="", agent_instance_id=""
            )
            self._tools = {one.function.name: one.function.parameters_json for one in tools}
            self._class = self._made([schema_of(one) for one in tools])
            for message in messages_of(tasks, TaskDefaults(self.name, "-")):
                self._add(message)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TrlEnvironments:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self) -> TrlEnvironment:
        """An object for one rollout at a time."""
        return self._class(self._begin)

    def reward(
        self,
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        environments: Sequence[Any],
        **columns: Any,
    ) -> list[float | None]:
        """The verified reward of each rollout; None if the rollout failed, was not judged, or
        belongs to another environment.
        """
        thread = self._running()
        found = thread.run(self._judged(completions, completion_ids, environments))
        self.outcomes = [one for one in found if one is not None]
        for one in self.outcomes:
            self.counts["rollouts"] += 1
            self.counts["failed"] += one.failure is not None
            self.counts["unscored"] += one.failure is None and one.reward is None
            if one.failure is not None:
                _log.warning("a rollout of task %s failed: %s", one.task_id, one.why)
        return [None if one is None else one.reward for one in found]

    def close(self) -> None:
        """Close the sessions that are open, and the environment."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._closed())
        finally:
            thread.end()

    async def _closed(self) -> None:
        await asyncio.gather(*(one.close() for one in self._open))
        await self._stack.aclose()

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("the environments are closed")
        return self._thread

    async def _opened(
        self, place: MeshPlace, environment: str, security: SecurityConfig | None
    ) -> tuple[PeerDirectory, str, list[Any]]:
        """The directory, the environment's name and its tools. Raises UserError."""
        opening = open_environment(place, environment, security=security)
        directory, name = await self._stack.enter_async_context(opening)
        instance = await directory.pick(RESOURCE, name, timeout=_ASK_S)
        peer = directory.peer(instance)
        about: resource_pb2.GetEnvironmentResponse = await peer.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=_ASK_S
        )
        for has, what in (
            (about.multi_turn, "takes turns"),
            (about.judges_groups, "scores the repeats of a task together"),
        ):
            if has:
                raise UserError(
                    f"environment {name!r} {what}, which TRL's environment_factory does not "
                    "support. Collect with TrlRollouts instead"
                )
        tools: list[Any] = []
        token = ""
        while True:
            request = resource_pb2.ListToolsRequest(page_token=token)
            page: resource_pb2.ListToolsResponse = await peer.ListTools(request, timeout=_ASK_S)
            tools += page.tools
            token = page.next_page_token
            if not token:
                return directory, name, tools

    def _made(self, schemas: Sequence[Mapping[str, Any]]) -> type[TrlEnvironment]:
        """The class whose methods are the environment's tools."""
        methods = {one["name"]: tool_method(one, self._call) for one in schemas}
        try:
            from transformers.utils import get_json_schema
        except ImportError:  # without a trainer, as in a test of tasks, nothing is shown
            return type("TrlEnvironment", (TrlEnvironment,), methods)
        for one in schemas:
            lost = unsaid(one, get_json_schema(methods[one["name"]])["function"])
            if lost:
                self.unsaid[one["name"]] = lost
                _log.warning(
                    "tool %s: TRL's description of this tool can't express %s",
                    one["name"],
                    ", ".join(lost),
                )
        return type(f"TrlEnvironment_{self.name}", (TrlEnvironment,), methods)

    def _add(self, message: pb.Task) -> None:
        if message.environment != self.name:
            raise UserError(
                f"task {message.task_id} belongs to environment {message.environment!r}, not "
                f"{self.name!r}. Create one TrlEnvironments per environment"
            )
        prompt = plain_prompt(message)
        if message.params.tools:
            raise UserError(
                f"task {message.task_id} has its own tools, but TRL shows the same tools to "
                "every task. Collect with TrlRollouts instead"
            )
        if prompt[-1]["role"] != "user":
            raise UserError(f"task {message.task_id}: its input must end with a user message")
        self._tasks[message.task_id] = message
        self.rows.append({"prompt": prompt, "task_id": message.task_id, "environment": self.name})

    def _begin(self, row: Mapping[str, Any]) -> tuple[Episode, str | None]:
        """A new rollout of a row, with what its session says first. Raises UserError."""
        task = self._tasks.get(str(row.get("task_id")))
        if task is None:
            raise UserError(
                f"task_id: {row.get('task_id')!r} is not one of the tasks. Use the "
                "attribute `rows` as the trainer's dataset"
            )
        repeat = self._first_repeat + self._times[task.task_id]
        self._times[task.task_id] += 1
        attempt = AttemptId(
            rollout_id=f"{self._run_id}/{task.task_id}/{repeat}",
            attempt=1,
            seed=repeat_seed(task.seed, repeat) if task.HasField("seed") else None,
            run_id=self._run_id,
        )
        episode = Episode(self._environments, self.name, attempt, task, self._tools, self.counts)
        self._open.append(episode)
        return episode, self._running().run(episode.open())

    def _call(self, of: Any, name: str, arguments: Mapping[str, Any]) -> str:
        episode: Episode | None = of.episode
        if episode is None:
            raise RuntimeError("a tool was called before `reset`")
        return self._running().run(episode.call(name, arguments))

    async def _judged(
        self,
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        environments: Sequence[Any],
    ) -> list[EpisodeOutcome | None]:
        async def one(
            completion: Any, ids: Sequence[int], environment: Any
        ) -> EpisodeOutcome | None:
            if type(environment) is not self._class or environment.episode is None:
                return None
            episode: Episode = environment.episode
            cut_short = not ids or ids[-1] not in self._stops
            return await episode.judge(completion, cut_short=cut_short)

        found = await asyncio.gather(*map(one, completions, completion_ids, environments))
        ended, self._open = self._open, []
        await asyncio.gather(*(episode.close() for episode in ended))
        return found
