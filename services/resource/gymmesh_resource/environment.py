'''The class that an environment's author writes.

A whole environment:

    class Echo(Environment[None]):
        """Repeats what it is told."""

        @tool
        def echo(self, text: str) -> str:
            """Say the same again."""
            return text

        def verify(self, session: Session[None], rollout: Rollout) -> float:
            return float(rollout.answer == rollout.task.payload["wanted"])

One object of the class serves all sessions. Keep what belongs to one rollout in its session's state
and nowhere else. Every method may be `async` or plain. A plain method runs in a thread, where it
may block without delaying others.
'''

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, TypeVarTuple

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.errors import FILE_MODULE, DefinitionError, TaskInvalid, TookTooLong
from gymmesh_resource.expected import ExpectedAnswers
from gymmesh_resource.rollout import Member, Rollout, Transcript
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome, Pending
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from gymmesh_resource.folder_files import FolderFiles
    from gymmesh_resource.model_endpoint import ModelEndpoint
    from gymmesh_resource.session import Session
    from gymmesh_resource.tools import Image
    from gymmesh_resource.workers import ProcessPool
    from gymmesh_sandbox_access import SandboxSpec

S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Said: TypeAlias = "str | Image | responses_pb2.Item"
"""Something said to the model: a user's message as text or as an image, or any item."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The environment's turn: its message to the model (`say`), an optional reward, and whether the
    episode is over (`done`).
    """

    say: Said | Sequence[Said] = ()
    reward: float | None = None
    done: bool = False


class Environment(Generic[S]):
    """Base of all environments; `S` is the type of a session's state.

    A subclass sets these attributes where the default is not right:
    version: change it when tools or verdicts may change. verifier_version: change it when only
        verdicts may change.
    state: makes the new state of a session, usually a dataclass; None: no state.
    in_order: calls of one session run one after another, and agents send them in the order of the
        model's answer. Default: only with a state or a sandbox.
    verify_needs_session: whether `verify` needs the live session. Default: only with a state or a
        sandbox. Otherwise `verify` gets a new session when the old one has ended.
    keep_state: whether the final state of a session is kept with the rollout for a later verdict,
        if it can be written as JSON. Default: only when `verify` needs the session.
    tools_replayable: whether tools return the same answers in a new session of the same task and
        seed, and have no lasting effect. Stored calls may then be replayed for a later verdict.
    references: the reference verifiers whose verdicts the environment can reproduce, right or
        wrong, such as `nemo`. The configuration's `compat`, or the key `compat` of a task row,
        selects a reference verifier.
    retry_safe: whether a failed rollout may run again in a new session.
    reward_range: the lowest and the highest reward. If `reward_rule` adds the rewards of turns,
        the range applies to the sum. A reward outside the range is a fault of the verifier. The
        reward of a single turn may be as large as the range is wide, positive or negative.
    win_reward: the lowest reward that counts as a win, where rewards are partial; None: the reward
        of the expected answer.
    reward_rule: how the rewards of turns are added to the verifier's (REWARD_RULE_*).
    examples: optional example tasks: their rows, or the name of a file of rows (JSONL) in the
        folder of the class's module.
    models: the environment's own names for the model services that it calls (`session.ask`), such
        as judges and simulated users. The configuration maps these names to services of the
        mesh. Default: the services with the same names.
    sandbox: a sandbox for each session, at `session.sandbox`. sandboxes: more sandboxes by role, at
        `session.sandboxes[role]`. If `verify` does not need the session and the session has
        ended, `verify` gets new sandboxes.
    strict_tools: ask the model's host to enforce the schemas of all tools' arguments (see `tool`).
    processes: the maximum number of worker processes. process_memory: bytes of address space for
        each process; None: no limit. process_warm_up: called in each process before its first
        work.
    open_timeout_s: seconds that `open` may take.
    extra: the pip extra of gymmesh that a built-in environment requires.
    """

    version: ClassVar[str] = "1"
    verifier_version: ClassVar[str] = ""
    state: ClassVar[Callable[[], Any] | None] = None
    in_order: ClassVar[bool | None] = None
    verify_needs_session: ClassVar[bool | None] = None
    keep_state: ClassVar[bool | None] = None
    tools_replayable: ClassVar[bool] = False
    references: ClassVar[tuple[str, ...]] = ()
    retry_safe: ClassVar[bool] = True
    # Not ClassVars: an object may set its own, from its options.
    compat: str = ""
    reward_range: tuple[float, float] = (0.0, 1.0)
    processes: int = 2
    process_memory: int | None = None
    process_warm_up: ClassVar[Callable[[], object] | None] = None
    open_timeout_s: float = 60.0
    win_reward: float | None = None
    reward_rule: ClassVar[resource_pb2.RewardRule.ValueType] = (
        resource_pb2.REWARD_RULE_VERIFIER_ONLY
    )
    examples: ClassVar[str | Sequence[Mapping[str, Any]] | None] = None
    models: ClassVar[tuple[str, ...]] = ()
    sandbox: SandboxSpec | None = None
    sandboxes: Mapping[str, SandboxSpec] = MappingProxyType({})
    strict_tools: ClassVar[bool] = False
    extra: ClassVar[Extra | None] = None
    _worker_pool: ProcessPool | None = None

    def open(self) -> Awaitable[None] | None:
        """Prepare, once, before the first session. Be quick: the whole mesh waits for this call."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Undo `open`."""
        return None

    def check_task(self, task: Task) -> None:
        """Raise `TaskInvalid` for a task that cannot be run or judged. Be pure and quick."""

    def compat_of(self, task: Task) -> str:
        """The reference verifier whose verdict a task gets; empty: the right verdict.

        Raises `TaskInvalid` for a row whose `compat` is not one of `references`.
        """
        if not self.references:
            return ""
        chosen: object = task.payload.get("compat", self.compat)
        if chosen == "" or (isinstance(chosen, str) and chosen in self.references):
            return str(chosen)
        raise TaskInvalid(
            "compat",
            f"must be one of {', '.join(self.references)}. To use the "
            "environment's own verifier, remove the key",
        )

    def create_state(self, task: Task, seed: int) -> S | Awaitable[S]:
        """A new session's state, made from the task and the session's random seed."""
        factory = type(self).state
        return None if factory is None else factory()  # type: ignore[return-value]  # S is None then

    def close_session(self, session: Session[S]) -> Awaitable[None] | None:
        """Free what the session holds. Called once, however the rollout ended."""
        return None

    def opening(self, session: Session[S]) -> Said | Sequence[Said] | Awaitable[Sequence[Said]]:
        """The messages after the task's input, such as a game's opening or a user's message."""
        return ()

    def next_turn(self, session: Session[S], new: Transcript) -> Turn | str | Awaitable[Turn | str]:
        """The environment's turn after the model answered without calling a tool.

        An environment that defines this method is multi-turn. `new`: the items since the last turn.
        """
        raise NotImplementedError

    async def play(self, session: Session[S], endpoint: ModelEndpoint) -> None:
        """Play the session's whole episode with the model at this endpoint. Optional; for an
        environment whose framework has its own loop. The agent `program` with `program:
        environment` calls it once per session.

        Leave what `verify` needs in the session's state. The agent cancels the call when the
        rollout is cancelled, when its time runs out or when the policy reaches a limit. Then end
        everything that was started. After a limit or a time-out `verify` is still called and
        finds no result in the state. Raise in `verify` if no verdict is possible. An exception
        raised in `play` fails the rollout.
        """
        raise NotImplementedError

    @property
    def multi_turn(self) -> bool:
        """Whether the environment takes turns. Default: whether the class defines `next_turn`.
        Override this property if options decide.
        """
        return type(self).next_turn is not Environment.next_turn

    @property
    def plays(self) -> bool:
        """Whether `play` may be called. Default: whether the class defines `play`. Override this
        property if options decide.
        """
        return type(self).play is not Environment.play

    def verify(self, session: Session[S], rollout: Rollout) -> Outcome | Awaitable[Outcome]:
        """The verdict on a rollout. Raise if something fails: a fault is never a reward of 0."""
        return Pending("Judged together with the task's other repeats.")

    def verify_group(
        self, task: Task, members: Sequence[Member]
    ) -> Sequence[Outcome] | Awaitable[Sequence[Outcome]]:
        """The verdicts on a task's repeats, judged together: one for each member, in order."""
        raise NotImplementedError

    def expected(self, task: Task) -> ExpectedAnswers:
        """Right answers to a task, for an audit of the verifier (`gym-cli env audit`).

        Optional. Be pure and quick. Policies never get these answers. To read them over the
        network, a caller needs the permission `audit`. None or an empty list: no right answer to
        this task is known.
        """
        return None

    def choices(self, task: Task) -> Sequence[str]:
        """The answers that the policy can choose from; empty: the task is open.

        Optional. Be pure and quick. Each answer is complete, as `verify` reads it. Agents receive
        these answers, so their order must not depend on the right answer. The agent `choices` asks
        the policy to score each answer instead of sampling an answer.
        """
        return ()

    def harbor_folder(self, task: Task) -> FolderFiles:
        """The task as a Harbor task folder. The tests in the folder return the same reward.
        Optional, for environments that work in a sandbox (`gym-cli data harbor`).

        Raises `TaskInvalid` with the key of a value that a folder cannot express.
        """
        raise TaskInvalid(
            "environment",
            f"{type(self).__name__} judges with its own Python code, which can't be written "
            "into a Harbor task folder",
        )

    def session_tools(
        self, session: Session[S]
    ) -> Sequence[Mapping[str, Any]] | Awaitable[Sequence[Mapping[str, Any]]]:
        """Additional function tools of this session only, as Responses JSON (`{"type": "function",
        "name": …, "description": …, "parameters": {…}}`). `call_other` answers their calls.
        """
        return ()

    def call_other(
        self, session: Session[S], name: str, arguments: dict[str, Any]
    ) -> Any | Awaitable[Any]:
        """Answers a call of a tool from `session_tools` or from the task's own `tools`, as a
        `@tool` method does. The arguments are an object and are not checked further. Without this
        method the model gets the error that there is no such tool.
        """
        raise NotImplementedError

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        """The sandboxes of a task's session, by role. Default: those that the class declares.

        Define this method if the task decides, for example which image to use. Be pure and quick.
        A class that defines this method needs no `sandbox` attribute; see `sandbox_services`.
        """
        return self.declared_sandboxes()

    def sandbox_services(self, mapped: Collection[str]) -> Collection[str]:
        """The environment's own names for the sandbox services that it uses: the services of the
        declared sandboxes. If only tasks decide: the services that the configuration maps, or the
        default service.
        """
        declared = {spec.service for spec in self.declared_sandboxes().values()}
        if declared or type(self).sandbox_specs is Environment.sandbox_specs:
            return declared
        from gymmesh_sandbox_access import SandboxSpec

        return mapped or {SandboxSpec().service}

    def declared_sandboxes(self) -> Mapping[str, SandboxSpec]:
        """The sandboxes that the class declares, by role; `sandbox` has the role `workspace`."""
        from gymmesh_sandbox_access import WORKSPACE

        own = {} if self.sandbox is None else {WORKSPACE: self.sandbox}
        return {**own, **self.sandboxes}

    def reward_functions(self) -> Mapping[str, tuple[Callable[..., Any], float]]:
        """The reward functions by name, each with its weight: methods marked `@reward`."""
        from gymmesh_resource.rewards.marking import marked_methods

        return {
            mark.name: (getattr(self, attribute), mark.weight)
            for attribute, mark in marked_methods(type(self)).items()
        }

    def called_models(self) -> Sequence[str]:
        """The models that the environment requires, by its own names. Override this method if
        options decide.
        """
        return self.models

    async def in_process(
        self, function: Callable[[*Ts], T], *arguments: *Ts, timeout_s: float = 30.0
    ) -> T:
        """Runs `function(*arguments)` in a worker process, for CPU-bound work. A thread would block
        all other threads, and can't be stopped.

        The function must be defined at the top level of an importable module. Its arguments and
        result must be picklable. After `timeout_s` seconds the service kills the process, and the
        calling method fails as timed out. Raises the exceptions of the function, and `PoolError`
        if the process crashed.
        """
        from gymmesh_resource.workers import WorkerTimeout

        if function.__module__.startswith(FILE_MODULE):
            raise DefinitionError(
                f"A worker process can't import {function.__qualname__}, because the file of this "
                "function was loaded by path. Name the class as package.module:Class."
            )
        try:
            return await self.process_pool.run(function, *arguments, timeout=timeout_s)
        except WorkerTimeout:
            problem = f"took longer than {timeout_s:g} s in a worker process"
            raise TookTooLong(problem, timeout_s) from None

    async def work_on_answer(
        self, function: Callable[[*Ts], T], *arguments: *Ts, cpu_s: float
    ) -> T:
        """Runs `function(*arguments)` on text that a model wrote, in a worker process, within
        `cpu_s` seconds of processor time.

        Raises the exceptions of the function; `AnswerTooMuch` if the function exceeded its time or
        memory or crashed its process; TimeoutError if the machine was too busy to run the
        function; `PoolError`.
        """
        from gymmesh_resource.workers import WorkerTimeout, work_on_answer

        try:
            return await work_on_answer(self.process_pool, function, *arguments, cpu_s=cpu_s)
        except WorkerTimeout as error:
            raise TimeoutError(str(error).rstrip(".")) from error

    @property
    def process_pool(self) -> ProcessPool:
        """The worker processes. Each process starts when it is first needed."""
        from gymmesh_resource.workers import ProcessPool

        if self._worker_pool is None:
            self._worker_pool = ProcessPool(
                workers=self.processes,
                warm_up=type(self).process_warm_up,
                memory_limit=self.process_memory,
            )
        return self._worker_pool

    async def close_processes(self) -> None:
        """End the worker processes. The service calls this after `close`."""
        pool, self._worker_pool = self._worker_pool, None
        if pool is not None:
            await pool.aclose()

    def types_by_tool(self) -> Mapping[str, Mapping[str, Any]]:
        """Types that replace the annotated types of parameters, by tool and parameter. Override
        this method if options decide.
        """
        return {}

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """The example tasks as rows of a task file. Default: those in `examples`."""
        examples: Any = self.examples
        return examples if isinstance(examples, list | tuple) else ()

    def examples_file(self) -> Path | None:
        """The file with the example tasks, or None. Raises DefinitionError."""
        examples: Any = self.examples  # an author may have set anything
        if examples is None or isinstance(examples, list | tuple):
            return None
        if not isinstance(examples, str | os.PathLike):
            raise DefinitionError(
                f"{type(self).__name__}.examples is a {type(examples).__name__}. Set examples to a "
                "list of task rows, or to the name of a file of task rows next to the class's "
                "module."
            )
        module = sys.modules.get(type(self).__module__)
        file = getattr(module, "__file__", None) or inspect.getfile(type(self))
        return Path(file).parent / examples
