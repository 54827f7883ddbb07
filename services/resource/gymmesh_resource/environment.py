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

One object of the class serves all sessions: what belongs to one rollout goes into its session's
state, nowhere else. Every method may be `async`, or plain and then runs in a thread, where it
may block without holding up others.
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
    """The environment's turn: what it says, the turn's reward if any, whether all is over."""

    say: Said | Sequence[Said] = ()
    reward: float | None = None
    done: bool = False


class Environment(Generic[S]):
    """Base of all environments; `S` is the type of a session's state.

    To be set by a subclass, where the default does not do:
    version: changes when tools or verdicts may change. verifier_version: of the verdicts alone.
    state: makes a session's fresh state, usually a dataclass; None: there is none.
    in_order: calls of one session run one after another, in order of arrival; by default
        exactly when there is state or a sandbox.
    verify_needs_session: whether `verify` needs the live session; by default exactly when there
        is state or a sandbox. Otherwise it is given a fresh session when the old one is gone.
    keep_state: whether a session's final state is kept with the rollout, as far as JSON can hold
        it, for a later verdict; by default exactly when `verify` needs the session.
    tools_replayable: whether the tools give the same answers again in a new session of the same
        task and seed, and do no harm: stored calls may then be replayed for a later verdict.
    references: the references whose own verdicts it can give, right or wrong, such as `nemo`: the
        configuration's `compat` chooses one, or a task's row does by its key `compat`.
    retry_safe: whether a rollout that failed may run again in a fresh session.
    reward_range: the least and the most that a reward may be, also with the turns' rewards where
        `reward_rule` adds them; anything else is a fault of the verifier. A turn's own may be as
        much as the range is wide, and may take it back.
    win_reward: the least reward that counts as won, where rewards are partial; None: that of the
        expected answer.
    reward_rule: how the rewards of turns add up with the verifier's (REWARD_RULE_*).
    examples: the example tasks, if any: their rows, or the name of a file of rows (JSONL) beside
        the class's module.
    models: its own names for the model services that it asks (`session.ask`): judges, simulated
        users. The configuration maps them to services of the mesh; by default to those of the
        same name.
    sandbox: a sandbox for each session, at `session.sandbox`. sandboxes: further ones by role, at
        `session.sandboxes[role]`. A verifier that says that it does not need the session gets
        new ones where the session is gone.
    strict_tools: ask the model's host to hold all tools' arguments to their schemas (see `tool`).
    processes: how many worker processes there may be. process_memory: bytes of address space of
        each, where that is to be bounded. process_warm_up: called in each before its first work.
    open_timeout_s: seconds that `open` may take.
    extra: the extra of gymmesh that it cannot do without, for environments that come with it.
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
    # No ClassVars: where options decide, an object sets its own.
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
        """Get ready, once, before the first session; quickly, for the whole mesh waits."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Undo `open`."""
        return None

    def check_task(self, task: Task) -> None:
        """Raise `TaskInvalid` for a task that cannot be run or judged. Pure and quick."""

    def compat_of(self, task: Task) -> str:
        """The reference whose own verdict a task is to get; empty: the right verdict.

        Raises `TaskInvalid` for a row whose `compat` is not one of `references`.
        """
        if not self.references:
            return ""
        chosen: object = task.payload.get("compat", self.compat)
        if chosen == "" or (isinstance(chosen, str) and chosen in self.references):
            return str(chosen)
        raise TaskInvalid("compat", f"must be one of {', '.join(self.references)}, or be left out")

    def create_state(self, task: Task, seed: int) -> S | Awaitable[S]:
        """A session's state, made from the task and the seed of the session's chance."""
        factory = type(self).state
        return None if factory is None else factory()  # type: ignore[return-value]  # S is None then

    def close_session(self, session: Session[S]) -> Awaitable[None] | None:
        """Free what the session holds; called once, however the rollout ended."""
        return None

    def opening(self, session: Session[S]) -> Said | Sequence[Said] | Awaitable[Sequence[Said]]:
        """What follows the task's input: a game's opening, a user's first words."""
        return ()

    def next_turn(self, session: Session[S], new: Transcript) -> Turn | str | Awaitable[Turn | str]:
        """The environment's turn after the model answered without calling a tool.

        An environment that defines this is multi-turn. `new`: what came since the last turn.
        """
        raise NotImplementedError

    async def play(self, session: Session[S], endpoint: ModelEndpoint) -> None:
        """Play the session's whole episode, with the model at this endpoint: for environments whose
        other side brings a loop of its own. Optional; the agent `program` with `program:
        environment` calls it, once for a session.

        Leave in the session's state what `verify` judges by. It is cancelled when the rollout is,
        or when its time or a limit of the policy is up: end everything then that was started.
        `verify` is called after a limit or the agent's time, too, and finds no result there; let it
        raise where that is no basis for a verdict. What is raised here fails the rollout.
        """
        raise NotImplementedError

    @property
    def multi_turn(self) -> bool:
        """Whether the environment takes turns: by default where the class defines `next_turn`. To
        be overridden where options decide.
        """
        return type(self).next_turn is not Environment.next_turn

    @property
    def plays(self) -> bool:
        """Whether `play` may be called: by default where the class defines it. To be overridden
        where options decide.
        """
        return type(self).play is not Environment.play

    def verify(self, session: Session[S], rollout: Rollout) -> Outcome | Awaitable[Outcome]:
        """The verdict on a rollout. What goes wrong here is never a reward: raise it."""
        return Pending("Judged together with the task's other repeats.")

    def verify_group(
        self, task: Task, members: Sequence[Member]
    ) -> Sequence[Outcome] | Awaitable[Sequence[Outcome]]:
        """The verdicts on a task's repeats, judged together: one each, in order."""
        raise NotImplementedError

    def expected(self, task: Task) -> ExpectedAnswers:
        """Right answers to a task, for an audit of the verifier (`gym-cli env audit`).

        Optional. Pure and quick. No policy gets them: over the network they need a permission of
        their own. None, or an empty list: this task has none that is known.
        """
        return None

    def harbor_folder(self, task: Task) -> FolderFiles:
        """The task as a task folder of Harbor, whose own tests give the same reward. Optional: for
        environments that work in a sandbox (`gym-cli data harbor`).

        Raises `TaskInvalid` for what a folder cannot say, and names the key.
        """
        raise TaskInvalid(
            "environment",
            f"{type(self).__name__} judges by code of its own, which no task folder of Harbor has",
        )

    def session_tools(
        self, session: Session[S]
    ) -> Sequence[Mapping[str, Any]] | Awaitable[Sequence[Mapping[str, Any]]]:
        """Further function tools of this session alone, as Responses JSON (`{"type": "function",
        "name": …, "description": …, "parameters": {…}}`); their calls come to `call_other`.
        """
        return ()

    def call_other(
        self, session: Session[S], name: str, arguments: dict[str, Any]
    ) -> Any | Awaitable[Any]:
        """A call of a tool that is none of the class's own, but one of `session_tools` or of the
        task's own `tools`. Answers as a `@tool` method does. The arguments are an object, and not
        checked further. Without this method the model gets the error that there is no such tool.
        """
        raise NotImplementedError

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        """The sandboxes of a task's session by role: by default those that the class declares.

        For what a task decides, such as its image. Pure and quick. A class that writes it needs no
        `sandbox` beside it; see `sandbox_services`.
        """
        return self.declared_sandboxes()

    def sandbox_services(self, mapped: Collection[str]) -> Collection[str]:
        """Its own names for the sandbox services that it uses: those of the sandboxes that the
        class declares. Where tasks alone decide, those that the configuration maps, or the usual
        one.
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
        """The models that must be there, by the environment's names: for what options decide."""
        return self.models

    async def in_process(
        self, function: Callable[[*Ts], T], *arguments: *Ts, timeout_s: float = 30.0
    ) -> T:
        """`function(*arguments)` in a worker process, for what keeps a processor busy: a thread
        would hold up all others, and cannot be stopped.

        The function is one at the top of a module that can be imported; arguments and result
        pickle. Over its time it is killed, which counts as the caller's own time-out. Raises
        what the function raises, and `PoolError` when its process crashed.
        """
        from gymmesh_resource.workers import WorkerTimeout

        if function.__module__.startswith(FILE_MODULE):
            raise DefinitionError(
                f"{function.__qualname__} is in a file that was loaded by its path, which a "
                "worker process cannot import; name the class as package.module:Class."
            )
        try:
            return await self.process_pool.run(function, *arguments, timeout=timeout_s)
        except WorkerTimeout:
            raise TookTooLong(f"longer than {timeout_s:g} s in a worker process") from None

    async def work_on_answer(
        self, function: Callable[[*Ts], T], *arguments: *Ts, cpu_s: float
    ) -> T:
        """`function(*arguments)` on what a model wrote, in a worker process, within `cpu_s`
        seconds of processor time.

        Raises what the function raises; `AnswerTooMuch` where it used up its time or memory, or
        broke its process; TimeoutError where the machine gave it no time; and `PoolError`.
        """
        from gymmesh_resource.workers import WorkerTimeout, work_on_answer

        try:
            return await work_on_answer(self.process_pool, function, *arguments, cpu_s=cpu_s)
        except WorkerTimeout as error:
            raise TimeoutError(str(error).rstrip(".")) from error

    @property
    def process_pool(self) -> ProcessPool:
        """The worker processes; each starts when it is first needed."""
        from gymmesh_resource.workers import ProcessPool

        if self._worker_pool is None:
            self._worker_pool = ProcessPool(
                workers=self.processes,
                warm_up=type(self).process_warm_up,
                memory_limit=self.process_memory,
            )
        return self._worker_pool

    async def close_processes(self) -> None:
        """End the worker processes; the service does so after `close`."""
        pool, self._worker_pool = self._worker_pool, None
        if pool is not None:
            await pool.aclose()

    def types_by_tool(self) -> Mapping[str, Mapping[str, Any]]:
        """Types that replace parameters' annotated ones, by tool: for what options decide."""
        return {}

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """The example tasks as rows of a task file: by default those in `examples`."""
        examples: Any = self.examples
        return examples if isinstance(examples, list | tuple) else ()

    def examples_file(self) -> Path | None:
        """Where the example tasks are, or None. Raises DefinitionError."""
        examples: Any = self.examples  # an author may have set anything
        if examples is None or isinstance(examples, list | tuple):
            return None
        if not isinstance(examples, str | os.PathLike):
            raise DefinitionError(
                f"{type(self).__name__}.examples is a {type(examples).__name__}; it must be a list"
                " of task rows, or the name of a file of them beside the class's module."
            )
        module = sys.modules.get(type(self).__module__)
        file = getattr(module, "__file__", None) or inspect.getfile(type(self))
        return Path(file).parent / examples
