"""Tasks of Inspect: their samples are tasks, and their scorers judge. Either an agent of the mesh
or the task's own solver plays.

Inspect runs in a separate interpreter, see `peer`. A session is one sample of an evaluation there.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import (
    Environment,
    ModelEndpoint,
    Rollout,
    SandboxSpec,
    Session,
    Task,
    TaskInvalid,
    ToolError,
)
from gymmesh_resource.environments.inspect.listing import TaskListing, listing_of, not_loaded
from gymmesh_resource.environments.inspect.sandbox_calls import (
    SandboxCalls,
    role_of,
    sandbox_spec,
)
from gymmesh_resource.environments.inspect.verdict import NoVerdict, verdict_of
from gymmesh_resource.peer_processes import PeerFault, PeerOptions, PeerProcess, SharedPeer
from gymmesh_resource.verdicts import Outcome
from gymmesh_responses import item_from_json, items_to_list, params_to_dict
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import Reach

_LOGGER = logging.getLogger("gymmesh.resource.inspect")
_KEY: Final = "inspect"
_VERIFIER_FAULT: Final = errors_pb2.ERROR_REASON_VERIFIER_FAULT
_ENVIRONMENT_FAULT: Final = errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
# A call ends with the environment's own call, whose time is the configuration's.
_LONGEST_S: Final = 86_400.0
_CLOSE_S: Final = 10.0
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@dataclass(slots=True)
class _Sample:
    """A session's part in a process of Inspect's.

    id: its name there. peer: the process; None: none has it. context: of the method that calls it,
    for what it asks meanwhile. failure: of a model that it asked.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    peer: PeerProcess | None = None
    context: Context | None = None
    calls: SandboxCalls = field(default_factory=SandboxCalls)
    failure: MeshError | None = None


class InspectEnvironment(Environment[_Sample]):
    """A task of Inspect, judged by its own scorers. A mesh agent or its own solver plays."""

    version = "1"
    state = _Sample
    in_order = True
    verify_needs_session = True
    keep_state = False  # the state is in Inspect's process
    reward_range = (float("-inf"), float("inf"))  # scorers declare none
    models: ClassVar[tuple[str, ...]] = ("judge",)
    #: What Inspect's interpreter runs.
    script: ClassVar[Path] = Path(__file__).parent / "peer" / "script.py"

    def __init__(
        self,
        *,
        task: str,
        args: dict[str, Any] | None = None,
        solver: Literal["ours", "own"] = "ours",
        python: str = "",
        limit: Annotated[int, msgspec.Meta(ge=1)] | None = None,
        judge: bool = False,
        score: str | None = None,
        images: dict[str, str] | None = None,
        network: Literal["agent", "none", "open"] | list[str] = "agent",
        variables: dict[str, str] | None = None,
        runners: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1,
        start_timeout_s: _Seconds = 120.0,
    ) -> None:
        """Options.

        task: `file.py@task`, or `package/task` of an installed package.
        args: the task's arguments.
        solver: who plays. `ours`: an agent of the mesh. `own`: the task's solver, with the agent
            `program` and its option `program: environment`.
        python: the interpreter that has inspect-ai and openai. Default: the service's own.
        limit: the number of samples, from the first.
        judge: whether scorers may call the model `judge` of the configuration.
        score: the score that is the reward: `scorer`, or `scorer.key`. Default: the first scorer's.
        images: images of the sandbox service, by a task's id, the image that the task names, or
            `*` for all others.
        network: what sandboxes can reach.
        variables: environment variables of Inspect's processes. Of the service's own variables,
            these processes get only PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_ALL, TZ, TMPDIR and
            the paths of certificates.
        runners: number of processes that run samples.
        start_timeout_s: seconds for a process to start and to load the task.
        """
        file = Path(task.partition("@")[0])
        own_file = file.suffix == ".py"
        if own_file and not file.is_file():
            raise ValueError(f"task: there is no file {file}.")
        self._task = task
        self._ours = solver == "ours"
        self._judge = judge
        self._score = score
        self._images = images or {}
        self._network: Reach = network
        self._start_s = start_timeout_s
        self._options = PeerOptions(
            name=f"the process of the Inspect task {task}",
            # Not resolved: the link is what makes it that of a virtual environment.
            python=str(Path(python).absolute()) if "/" in python else python or sys.executable,
            script=self.script,
            cwd=str(file.parent.resolve()) if own_file else None,
            env=variables or {},
            start_s=start_timeout_s,
        )
        self._load = {
            "task": task.rpartition("/")[2] if own_file else task,
            "args": args or {},
            "solver": solver,
            "limit": limit,
            "judge": judge,
        }
        self._listing: TaskListing | None = None
        make = self._new_peer
        self._peers = [
            SharedPeer(make, "load", self._load, start_timeout_s) for _ in range(runners)
        ]
        self._turns = itertools.cycle(self._peers)
        # The start says by itself that it took too long.
        self.open_timeout_s = start_timeout_s + _CLOSE_S
        self._open: dict[str, Session[_Sample]] = {}
        self._left_out: set[str] = set()  # tools that were warned of

    def called_models(self) -> Sequence[str]:
        return self.models if self._judge else ()

    def sandbox_services(self, mapped: Collection[str]) -> Collection[str]:
        """No services if no sample has a sandbox."""
        rows = self._listed().rows.values()
        return super().sandbox_services(mapped) if any(row["sandbox"] for row in rows) else ()

    @property
    def plays(self) -> bool:
        return not self._ours

    async def open(self) -> None:
        """Start the first process, so that a process that can't start is reported at once."""
        try:
            await self._peers[0].process()
        except PeerFault as error:
            raise not_loaded(error, self._task, self._options.python) from None

    async def close(self) -> None:
        await asyncio.gather(*(peer.close() for peer in self._peers))

    def tasks(self) -> Iterator[Mapping[str, Any]]:
        """A row for each sample, also for samples that will be rejected."""
        for sample_id, row in self._listed().rows.items():
            prompt = row["input"] or [{"role": "user", "content": sample_id}]
            yield {
                "task_id": sample_id,
                "responses_create_params": {"input": prompt},
                _KEY: sample_id,
            }

    def check_task(self, task: Task) -> None:
        """The row must name a sample that Inspect can run."""
        self._row(task)

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        services = self._row(task)["sandbox"] or []
        return {
            role: sandbox_spec(
                service,
                image=self._image(task.id, service.get("image", "")),
                network=self._network,
                lent=service is services[0],
            )
            for service in services
            if (role := role_of(service["name"], services))
        }

    async def session_tools(self, session: Session[_Sample]) -> Sequence[Mapping[str, Any]]:
        """Open the sample: Inspect creates its files, and runs its solver to the first model call.
        Returns the tools of this call.
        """
        state = session.state
        self._open[state.id] = session
        row = self._row(session.task)
        wanted = {
            "sample": session.task.payload[_KEY],
            "input": _prompt(session.task),
            "sandboxes": [service["name"] for service in row["sandbox"] or []],
        }
        try:
            state.peer = await next(self._turns).process()
        except PeerFault as error:
            raise error.as_mesh_error("inspect", "session_tools") from None
        opened = await self._call(session, "open", wanted, "session_tools")
        for name in set(opened["left_out"]) - self._left_out:
            self._left_out.add(name)
            _LOGGER.warning(
                "the agent does not get the tool %s of the Inspect task %s: gymmesh can't run this "
                "tool",
                name,
                self._task,
            )
        return [dict(tool) for tool in opened["tools"]]

    async def call_other(
        self, session: Session[_Sample], name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        """Call a tool of the task. Inspect runs the call in the sample."""
        wanted = {"name": name, "arguments": arguments}
        answer = await self._call(session, "call", wanted, "call_tool")
        if "error" in answer:
            raise ToolError(answer["error"])
        if answer["done"]:
            session.finish()
        parts = answer["output"]
        if all(part["type"] == "input_text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        item = item_from_json({"type": "function_call_output", "call_id": "", "output": parts})
        return item.function_call_output.parts

    async def play(self, session: Session[_Sample], endpoint: ModelEndpoint) -> None:
        """Run the task's solver, with its limits, to its end."""
        wanted = {"base_url": endpoint.base_url, "key": endpoint.key, "model": endpoint.model}
        await self._call(session, "play", wanted, "play", secret=endpoint.key)

    async def verify(self, session: Session[_Sample], rollout: Rollout) -> Outcome:
        """The verdict of the task's scorers."""
        wanted = {
            "items": [*_prompt(rollout.task), *items_to_list(rollout.items)],
            "stop": rollout_pb2.StopReason.Name(rollout.stop_reason),
        }
        with rollout.stage("scorers"):
            answer = await self._call(session, "verify", wanted, "verify", _VERIFIER_FAULT)
        try:
            return verdict_of(answer, self._score)
        except NoVerdict as error:
            raise MeshError(
                _VERIFIER_FAULT,
                f"The environment 'inspect' returned no verdict on the sample "
                f"{rollout.task.id!r}: {error}.",
                metadata={"verifier": "inspect", "stage": "verify"},
            ) from None

    async def close_session(self, session: Session[_Sample]) -> None:
        """End the sample, in whatever state it is."""
        state = session.state
        self._open.pop(state.id, None)
        if state.peer is None or state.peer.lost is not None:
            return
        try:
            await state.peer.call("close", {"session": state.id}, _CLOSE_S)
        except PeerFault as error:
            _LOGGER.warning(
                "a sample of the Inspect task %s did not end when the session closed: %s",
                self._task,
                error,
            )

    def _new_peer(self) -> PeerProcess:
        return PeerProcess(self._options, self._answer)

    def _listed(self) -> TaskListing:
        """The samples. Raises DefinitionError."""
        if self._listing is None:
            self._listing = listing_of(self._options, self._load, self._start_s)
            limits = self._listing.about["limits"]
            if self._ours and limits:
                # An agent has limits of its own, and Inspect sees the whole at its end alone.
                _LOGGER.warning(
                    "the limits of the Inspect task %s (%s) do not apply to gymmesh agents: set "
                    "the agent's option max_steps and the run's option --timeout",
                    self._task,
                    ", ".join(limits),
                )
        return self._listing

    def _row(self, task: Task) -> dict[str, Any]:
        sample_id = task.require(_KEY, str)
        row = self._listed().rows.get(sample_id)
        if row is None:
            raise TaskInvalid(
                _KEY, f"is {sample_id!r}, which is not the id of a sample of the Inspect task"
            )
        if row["problem"]:
            raise TaskInvalid(_KEY, f"names a sample that Inspect can't run: {row['problem']}")
        return row

    def _image(self, task_id: str, own: str) -> str:
        names = (task_id, own, "*")
        return next((self._images[name] for name in names if name in self._images), "")

    async def _call(
        self,
        session: Session[_Sample],
        method: str,
        params: Mapping[str, Any],
        stage: str,
        reason: errors_pb2.ErrorReason.ValueType = _ENVIRONMENT_FAULT,
        secret: str = "",
    ) -> Any:
        """What the script answers. Raises MeshError: a model's own, or `reason`."""
        state = session.state
        if state.peer is None:
            raise RuntimeError("the sample was not opened")
        state.context = copy_context()
        named = {"session": state.id, **params}
        hidden = (secret,) if secret else ()
        try:
            return await state.peer.call(method, named, _LONGEST_S, hidden)
        except PeerFault as error:
            if state.failure is not None:
                raise state.failure from error
            raise error.as_mesh_error("inspect", stage, reason) from None

    async def _answer(self, method: str, params: dict[str, Any]) -> Any:
        """What a sample asks, done in the context of its session's call."""
        session = self._open.get(params["session"])
        if session is None:
            raise LookupError("the session is closed")
        work = (
            self._judged(session, params)
            if method == "judge"
            else self._in_sandbox(session, method, params)
        )
        loop = asyncio.get_running_loop()
        return await loop.create_task(work, context=session.state.context)

    async def _judged(self, session: Session[_Sample], params: dict[str, Any]) -> str:
        try:
            answer = await session.ask("judge", params["input"], **params["params"])
        except MeshError as error:
            session.state.failure = error
            raise
        return answer.text

    async def _in_sandbox(
        self, session: Session[_Sample], method: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        services = self._row(session.task)["sandbox"] or []
        sandbox = session.sandboxes[role_of(params["sandbox"], services)]
        return await session.state.calls.perform(method, sandbox, params)


def _prompt(task: Task) -> list[Any]:
    """What the model is shown before anything else, as items."""
    params = params_to_dict(task.message.params)
    given: Any = params.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    if instructions := params.get("instructions"):
        items.insert(0, {"role": "system", "content": instructions})
    return items
