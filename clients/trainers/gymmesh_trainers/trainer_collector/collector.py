"""Collects groups of finished rollouts for a trainer, step by step.

step             a step of the training: groups, as they finish (steps.py)
evaluate         rollouts of an evaluation, apart from all steps (evaluation.py)
state_dict       what is saved beside the trainer's checkpoint (state.py)
one, many        single rollouts, for trainers that have a loop and groups of their own
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError, run_attempt
from gymmesh_client.collector import ended_by, repeat_seed
from gymmesh_client.dispatch import cause_of
from gymmesh_client.rollout_ids import rollout_id
from gymmesh_client.rows import FailedAttempt
from gymmesh_client.side_data import side_data_path
from gymmesh_model.backends.base import Backend
from gymmesh_resource import Environment, Task
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.security import SecurityConfig
from gymmesh_trainers.rollouts import FailedRollout, Rollout, RolloutGroup
from gymmesh_trainers.trainer_collector.evaluation import Evaluation, greedy
from gymmesh_trainers.trainer_collector.filters import Keep
from gymmesh_trainers.trainer_collector.grouping import grouped, judged
from gymmesh_trainers.trainer_collector.missing_tokens import MissingTokens
from gymmesh_trainers.trainer_collector.place import MeshPlace, Model, Policy, open_place
from gymmesh_trainers.trainer_collector.reading import blocks, defaults_of, drawn_of, refuse_bad
from gymmesh_trainers.trainer_collector.runs import RunName, Runs, first_of
from gymmesh_trainers.trainer_collector.series import StepSeries
from gymmesh_trainers.trainer_collector.settings import Settings, whole_number, with_settings
from gymmesh_trainers.trainer_collector.sources import TaskStream
from gymmesh_trainers.trainer_collector.steps import Leftovers, Step, StepOptions
from gymmesh_trainers.trainer_collector.tasks import TaskLike, Tasks, as_message
from gymmesh_trainers.trainer_collector.weights import WeightsVersions
from gymmesh_trainers.weights import (
    InFlight,
    PushFailed,
    WeightsEndpoint,
    WeightsPush,
    push_weights,
)


class TrainerCollector:
    """Collects groups for a trainer over a mesh that stays up between steps.

    An async context manager:

        async with TrainerCollector(environment, tasks=rows, model=engine) as collector:
            if checkpoint:
                collector.load_state_dict(checkpoint["collector"])
            while collector.next_step <= 500:
                async with collector.step(groups=32, keep=spread, leftovers="drop") as step:
                    async for group in step: ...
                await collector.set_weights_version(step.number)
                save(collector=collector.state_dict(), ...)

    Args:
        place: where to collect, see `gymmesh_trainers.trainer_collector.MeshPlace`.
        model: the policy; None: the policy of the configuration.
        model_name: if `model` is a URL, the model's name at that endpoint; empty: the endpoint's
            only model. With `relay`, the name under which the mesh finds the backend `model`;
            empty: a generated name.
        relay: a relay of a remote mesh (HOST:PORT). The mesh calls the backend `model` over a
            connection that this process opens to the relay.
        model_addresses: model services (HOST:PORT) of a remote mesh to notify of new weights.
        security: certificates and token for a remote mesh.
        tasks: the tasks for steps without their own tasks: a list or a task file, repeated
            endlessly, or a `TaskSet`, `Stages` or `Mix`. The position in these tasks is part of
            the saved state.
        start_step: the number of the first step; None: 1, or the number after a loaded state's.
        settings: see Settings.

    Attributes:
        counts: over all steps. Groups: finished `groups`, `rejected` groups among them, groups
            `carried` from earlier steps, and groups with rewards but `no_spread`. Rollouts of the
            finished groups: `rollouts` with a reward, `failed`, `unscored`, `stale`.
    """

    def __init__(
        self,
        place: MeshPlace,
        *,
        model: Model | None = None,
        model_name: str = "",
        model_addresses: Sequence[str] = (),
        security: SecurityConfig | None = None,
        relay: str = "",
        tasks: TaskStream | Sequence[TaskLike] | Path | str | None = None,
        start_step: int | None = None,
        **settings: Any,
    ) -> None:
        self.settings = Settings.of(settings)
        self._weights = WeightsVersions(self.settings.max_staleness)
        recorded = isinstance(model, Backend) and model.is_recorded
        self._missing_tokens = MissingTokens(recorded=recorded)
        self._steps = StepSeries(
            self.settings,
            _named(place),
            self._weights,
            tasks,
            start_step,
            self._ready,
            self._missing_tokens,
        )
        self._open = (place, model, model_name, model_addresses, security, relay)
        self._stack = AsyncExitStack()
        self._policy: Policy | None = None
        self._unsent = False  # whether the mesh has not been notified of the loaded state's version
        self._id = uuid.uuid4().hex[:12]
        self._singles = 0
        self._evaluations: set[Runs] = set()

    async def __aenter__(self) -> TrainerCollector:
        place, model, name, addresses, security, relay = self._open
        opened = open_place(
            place,
            model,
            model_name=name,
            model_addresses=addresses,
            security=security,
            timeout_s=self.settings.timeout_s,
            side_data=bool(self.settings.side_data),
            side_data_path=self.settings.side_data_path,
            relay=relay,
        )
        self._policy = await self._stack.enter_async_context(opened)
        return self

    async def __aexit__(self, *error: object) -> None:
        for runs in (self._steps.runs, *self._evaluations):
            await runs.close()
        self._policy = None
        await self._stack.aclose()

    @property
    def counts(self) -> Counter[str]:
        """Counts over all steps; see the class."""
        return self._steps.counts

    @property
    def weights_version(self) -> int | None:
        """The newest version that was announced or seen; None: none."""
        return self._weights.newest

    @property
    def next_step(self) -> int:
        """The default number of the next step."""
        return self._steps.last_step + 1

    async def set_weights_version(self, version: int, *, adapter: str = "") -> None:
        """Announce that the policy has the weights of this version. New tokens carry the version,
        and staleness is counted from it. Tokens that were sampled before the first call are treated
        as one version older than that call's version.

        adapter: the name of the adapter (LoRA) at the endpoints that generates from now on; empty:
        the endpoints' own weights. Raises MeshError if a model service refuses, and TypeError or
        ValueError for an invalid version.
        """
        whole_number("version", version, 0)
        await self._opened().set_weights_version(version, adapter)
        self._announced(version, adapter)

    async def push_weights(
        self,
        folder: Path | str,
        version: int,
        *,
        adapter: str = "",
        in_flight: InFlight = "continue",
        endpoints: Sequence[WeightsEndpoint] | None = None,
        aliases: Sequence[str] = (),
        folder_there: str = "",
        timeout_s: float = 600.0,
        unload_wait_s: float = 0.0,
    ) -> WeightsPush:
        """Load weights from a folder on the policy's inference servers, then announce the version.

        Args:
            endpoints: all servers of the policy; None: the servers that `model` or this process's
                configuration names.
            folder, version, adapter, in_flight, aliases, folder_there, timeout_s, unload_wait_s:
                as for `gymmesh_trainers.weights.push_weights`.

        Raises:
            PushFailed: an endpoint or model service lacks the weights; the text names each one.
            UserError: an argument is invalid; no server was changed.
        """
        whole_number("version", version, 0)
        policy = self._opened()
        try:
            async with policy.services() as services:
                done = await push_weights(
                    folder,
                    version,
                    endpoints=policy.endpoints if endpoints is None else endpoints,
                    services=services,
                    aliases=aliases,
                    adapter=adapter,
                    in_flight=in_flight,
                    folder_there=folder_there,
                    timeout_s=timeout_s,
                    unload_wait_s=unload_wait_s,
                )
        except PushFailed as error:
            if error.step == "resume":  # every model service has been told
                self._announced(version, error.push.adapter)
            raise
        self._announced(version, done.adapter)
        return done

    def _announced(self, version: int, adapter: str) -> None:
        self._unsent = False
        self._weights.announce(version, adapter)

    # -- steps --------------------------------------------------------------------------------

    def step(
        self,
        tasks: Tasks | None = None,
        *,
        groups: int | None = None,
        keep: Keep | Sequence[Keep] | None = None,
        at_most: int | None = None,
        leftovers: Leftovers = "keep",
        ordered: bool = False,
        number: int | None = None,
    ) -> Step:
        """A step: the groups of these tasks, and the unfinished groups of earlier steps, as they
        finish.

            async with collector.step(tasks, groups=32, leftovers="drop") as step:
                async for group in step: ...

        Args:
            tasks: rows, `Task`s or a task file; an iterator is read as tasks are needed, and an
                asynchronous one in blocks of 256. None: the collector's own `tasks`.
            groups: end after this many groups. None: when no tasks are left.
            keep: rules that select groups, as `spread` and `pass_rate(0.1, 0.9)`. The step yields a
                group if all rules keep it. Rejected groups are counted.
            at_most: end after this many groups, including rejected ones.
            leftovers: what to do with unfinished groups when the step ends, by `groups`, `at_most`
                or `break`. "keep": finish them and yield them in the next step. "drop": cancel
                them before the step is closed; if their tasks are the collector's own, they are
                drawn again. Either way no more groups start.
            ordered: yield groups in the order of their tasks, not as they finish. With "drop" and
                an engine that samples deterministically, two runs then have the same steps. Groups
                wait in memory for earlier ones.
            number: the trainer's number for this step, above that of the previous step. None: the
                next number. It is part of the names of files.

        Raises:
            ValueError, TypeError: an argument can't be used.
        """
        options = StepOptions(
            groups=groups, keep=keep, at_most=at_most, leftovers=leftovers, ordered=ordered
        )
        return self._steps.step(tasks, number, options)

    # -- evaluation ---------------------------------------------------------------------------

    async def evaluate(
        self,
        tasks: Tasks,
        *,
        params: Mapping[str, Any] | None = None,
        repeats: int = 1,
        output: Path | None = None,
    ) -> Evaluation:
        """Evaluate the policy on the same engines, between steps or concurrently with a step.

            found = await collector.evaluate(held_out, repeats=4, params={"temperature": 0.6})
            print(found.mean_reward, found.counts)

        Steps and `counts` don't include the evaluation's groups, and the evaluation doesn't include
        the groups of steps.

        Args:
            tasks: as for `step`.
            params: sampling parameters that override training's. The default is greedy: temperature
                0, without training's `top_p`, `top_k` and `min_p`. Prompts are the chat template's
                own, as when the policy is used, and not append-only.
            repeats: rollouts per task.
            output: where rows are written, with a journal; None: rows are not written.

        Raises the same exceptions as Step.next.
        """
        policy = await self._ready()
        settings = replace(
            self.settings,
            params=greedy(self.settings.params, params),
            repeats=repeats,
            max_staleness=None,
            append_only=False,
            output=output,
            resume=False,
        )
        weights = WeightsVersions(None)
        runs = Runs(settings, _named(self._open[0]), weights)
        found = Evaluation()
        self._evaluations.add(runs)
        try:
            part = 0
            async for block in blocks(tasks):
                refuse_bad(block, policy)
                part += 1
                await runs.start(policy, RunName(1, part), drawn_of(block, policy))
                while runs.live:
                    finished = await runs.next()
                    if finished is not None:
                        group = RolloutGroup(Task(finished.task), step=max(1, self.next_step - 1))
                        folders = self.settings.side_data_folders
                        found.add(grouped(group, finished.rollouts, weights, folders=folders))
        finally:
            self._evaluations.discard(runs)
            await runs.close()
        return found

    # -- the state ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The collector's state as JSON values, to save with the trainer's checkpoint.

        It has the last step's number, the weights' version, the counts, the position in the
        collector's own tasks, and the tasks of groups that no step has yielded. The rollouts of
        these groups are in the files of `output`. Without files, they are collected again.
        """
        return self._steps.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, before the first step. If you use `output`, also set `resume`.
        Rollouts of later steps that the files already hold are then not collected again.

        Raises:
            UserError: the state has another format, or belongs to other tasks.
            RuntimeError: a step has started.
        """
        self._steps.load_state_dict(state)
        self._unsent = self._weights.announced is not None

    # -- side data ----------------------------------------------------------------------------

    async def fetch_side_data(self, *rollouts: Rollout) -> None:
        """Copy side data from the model services into the settings' `side_data_path`, if this
        process can't read it at its original location. The rollouts' samples can then read it.

        Raises UserError without that setting, and MeshError if no model service has the data.
        """
        folders = self.settings.side_data_folders
        if not folders:
            raise UserError(
                "side_data_path: is not set; pass the folder that side data is copied into"
            )
        policy = self._opened()
        for rollout in rollouts:
            for call in rollout.message.model_calls:
                for side in call.tokens.side_data:
                    if not side.data and side_data_path(side, folders) is None:
                        await policy.fetch_side_data(side, folders[0], call.model)

    # -- single rollouts ----------------------------------------------------------------------

    async def one(self, task: TaskLike, *, repeat: int = 0) -> Rollout | FailedRollout:
        """Collect one rollout, for trainers that have their own loop and groups. After a failure
        the rollout is retried if a retry is safe, for at most `max_attempts` attempts in all. The
        pause before each retry is the same as in a step.
        """
        policy = await self._ready()
        return await self._single(policy, as_message(task, defaults_of(policy), 0), repeat)

    async def many(
        self, tasks: Sequence[TaskLike], *, first_repeat: int = 0
    ) -> list[Rollout | FailedRollout]:
        """Collect one rollout of each task, in the order of the tasks. All rollouts run at once, or
        at most `concurrency` if that is set. See `one`.

        Args:
            first_repeat: the repeat number of a task. A task given several times in a row gets this
                number and the following ones.

        Raises UserError for an invalid task, before any rollout begins. If one rollout raises, the
        others are cancelled.
        """
        policy = await self._ready()
        defaults = defaults_of(policy)
        messages = [as_message(task, defaults, place) for place, task in enumerate(tasks)]
        places = asyncio.Semaphore(self.settings.concurrency or max(1, len(tasks)))
        repeats = [first_repeat] * len(tasks)
        for place in range(1, len(tasks)):
            if _same(tasks[place], tasks[place - 1]):
                repeats[place] = repeats[place - 1] + 1

        async def single(message: pb.Task, repeat: int) -> Rollout | FailedRollout:
            async with places:
                return await self._single(policy, message, repeat)

        try:
            async with asyncio.TaskGroup() as group:
                started = [*map(group.create_task, map(single, messages, repeats))]
        except ExceptionGroup as errors:
            raise first_of(errors) from None
        found = [one.result() for one in started]
        for rollout in found:
            if isinstance(rollout, Rollout):
                self._missing_tokens.look(rollout)
        return found

    async def _single(
        self, policy: Policy, message: pb.Task, repeat: int
    ) -> Rollout | FailedRollout:
        self._singles += 1
        # Collectors of other processes may be at work on the same agents.
        run_id = f"one-{self._id}-{self._singles}"
        request = agent_pb2.RunRolloutRequest(
            task=message,
            rollout_id=rollout_id(run_id, message.task_id, repeat),
            run_id=run_id,
            options=self.settings.rollout_options(policy.role),
        )
        if message.HasField("seed"):
            request.task.seed = repeat_seed(message.seed, repeat)
        for attempt in range(1, self.settings.max_attempts + 1):
            request.attempt = attempt
            outcome = await run_attempt(
                policy.mesh.agents.connect,
                request,
                repeat_index=repeat,
                timeout_s=self.settings.timeout_s,
            )
            if not isinstance(outcome, FailedAttempt):
                folders = self.settings.side_data_folders
                rollout = judged(outcome, Task(message), self._weights, folders)
                self.counts.update(rollouts=1, stale=int(rollout.stale))
                return rollout
            failed = outcome
            if not failed.failure.retry_safe or attempt == self.settings.max_attempts:
                break
            await asyncio.sleep(_pause_s(failed, attempt))
        failed.partial.failed.failure.CopyFrom(failed.failure)
        self.counts["failed"] += 1
        return FailedRollout(failed.partial, Task(message))

    async def _ready(self) -> Policy:
        """The open mesh, which knows the weights' version of a loaded state."""
        policy = self._opened()
        version = self._weights.announced
        if self._unsent and version is not None:
            await self.set_weights_version(version, adapter=self._weights.adapter)
        return policy

    def _opened(self) -> Policy:
        if self._policy is None:
            raise RuntimeError("the collector is not open; open it with `async with collector:`")
        return self._policy


@with_settings
async def collect(
    place: MeshPlace,
    tasks: Tasks,
    *,
    model: Model | None = None,
    model_name: str = "",
    **options: Any,
) -> AsyncGenerator[RolloutGroup, None]:
    """The groups of finished rollouts of these tasks, as they finish.

        async for group in gymmesh.collect(environment, tasks, repeats=8, model=engine):
            for rollout, advantage in zip(group.rollouts, group.advantages):
                train(rollout.tokens, rollout.mask, rollout.logprobs, advantage)

    For arguments and errors, see TrainerCollector, its `step`, and Settings. If you leave the loop
    early, rollouts in flight are cancelled soon after; close the generator
    (`contextlib.aclosing`) to cancel them at once.
    """
    async with (
        TrainerCollector(place, model=model, model_name=model_name, **options) as collector,
        collector.step(tasks, number=1) as step,
    ):
        async for group in step:
            yield group


def _pause_s(failed: FailedAttempt, times: int) -> float:
    """Seconds before a rollout that has failed `times` times is tried again."""
    error = from_status(failed.failure.status)
    begun = failed.partial.HasField("started")
    ended = ended_by(failed.failure, error, begun=begun)
    return cause_of(ended).wait_s(times, ended.retry_after_s)


def _same(task: TaskLike, before: TaskLike) -> bool:
    """Whether two tasks are one: the same object, or rows that say the same."""
    return task is before or (isinstance(task, Mapping) and task == before)


def _named(place: MeshPlace) -> str:
    """The place in words that are the same in another process."""
    if isinstance(place, Environment):
        place = type(place)
    return f"{place.__module__}.{place.__qualname__}" if isinstance(place, type) else repr(place)
