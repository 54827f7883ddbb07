"""The environments of the shelf, each open in this process, with plays whose verdicts are known.

What a play is worth is asked of the environment itself, over its RPCs; a client of another protocol
must get the same.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_audit import Attack, ScriptedModel
from gymmesh_audit.attack import AttackKind
from gymmesh_audit.gold import gold_of
from gymmesh_mesh.compose import open_here, sandboxes_for
from gymmesh_resource.config import EnvironmentConfig, ProtocolName, ProtocolsConfig
from gymmesh_resource.service import ResourceService
from gymmesh_responses import dumps, loads, new_message
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.environments.harbor.made_tasks import RUNNABLE, write_tasks
from tests.unit.environments.nemo_gym.nemo_server import Counter, serving

_MODEL: Final = "gymmesh.model.v1.ModelService"
_VERIFY: Final = "gymmesh.verify.v1.VerifyService"
_AUDIT: Final = "gymmesh.verify.v1.AuditService"
_CALL_S: Final = 900.0
# Of one step of an environment: on a busy machine, a server or a sandbox takes minutes to start.
_STEP_S: Final = 600.0
#: Of each session, so that its randomness is the same for every client.
SEED: Final = 7
MOST_TURNS: Final = 60
SHELF: Final = (
    "calendar", "code", "function_calling", "game", "harbor", "instruction_following", "llm_judge",
    "math", "mcp", "mcqa", "nemo_gym", "reasoning_gym", "sql", "string_match",
    "structured_outputs", "user_simulator", "web_search", "workplace", "workspace",
)  # fmt: skip
_ids = itertools.count(1)


@dataclass(frozen=True)
class Play:
    """What a policy does in a task: calls, then a message, which in turns it says again and again.

    attack: for the scripted model that judges or plays the user.
    """

    name: str
    task_id: str
    message: str
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    wins: bool = False

    @property
    def attack(self) -> Attack:
        kind: AttackKind = "gold" if self.wins else "nothing"
        return Attack(self.name, kind, self.message, wins=self.wins, calls=self.calls)

    def as_json(self) -> dict[str, Any]:
        """As the clients of other frameworks read it, which are scripts of other interpreters."""
        return {
            "task_id": self.task_id,
            "message": self.message,
            "calls": [[name, dict(arguments)] for name, arguments in self.calls],
            "seed": SEED,
            "turns": MOST_TURNS,
        }


class CurrentModel(ScriptedModel):
    """Answers for the play that is under way, whatever the rollout is called; or is `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.attack: Attack | None = None
        self.broken = False

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        if self.broken:
            raise MeshError(errors_pb2.ERROR_REASON_MODEL_UNREACHABLE, "The model broke.")
        if self.attack is not None:
            self.play(request.rollout_id, self.attack)
        return await super().CreateResponse(request, context)


@dataclass
class Shelved:
    """One environment that is open."""

    name: str
    service: ResourceService
    directory: PeerDirectory
    instance: discovery_pb2.Instance
    model: CurrentModel = field(default_factory=CurrentModel)

    @property
    def url(self) -> str:
        """Where its protocols are."""
        return self.instance.meta["protocols"]

    async def tasks(self) -> list[rollout_pb2.Task]:
        request = resource_pb2.ListTasksRequest(page_size=1000)
        reply = await self.directory.peer(self.instance).ListTasks(request, timeout=_CALL_S)
        return list(reply.tasks)

    async def plays(self, tasks: int = 3) -> list[Play]:
        """Right and wrong answers to its first tasks."""
        found: list[Play] = []
        golds: list[Play] = []
        for task in (await self.tasks())[:tasks]:
            mine = [play async for play in self._golds(task)]
            golds += mine
            found += mine
            found.append(Play("empty", task.task_id, ""))
            found.append(Play("refusal", task.task_id, "I cannot help with that."))
        for play, other in itertools.pairwise(golds):
            found.append(Play("another's", play.task_id, other.message, other.calls))
        return found

    async def worth(self, play: Play) -> float | None:
        """The reward by its own RPCs; None: the episode does not end."""
        self.model.attack = play.attack
        task = next(one for one in await self.tasks() if one.task_id == play.task_id)
        resource = self.directory.peer(self.instance)
        opened = await resource.CreateSession(
            resource_pb2.CreateSessionRequest(
                task=task, seed=SEED, request_id=_new(), rollout_id=_new()
            ),
            timeout=_CALL_S,
        )
        try:
            items, over = await self._calls(opened.session_id, play)
            rewards: list[float] = []
            if not over:
                items.append(new_message("assistant", play.message))
                if opened.multi_turn:
                    over = await self._turns(opened.session_id, play, items, rewards)
                    if not over:
                        return None
            request = verify_pb2.VerifyRequest(
                session_id=opened.session_id,
                task=task,
                transcript=items,
                stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
                turn_rewards=rewards,
            )
            verifier = self.directory.peer(self.instance, _VERIFY)
            verdict = (await verifier.Verify(request, timeout=_CALL_S)).verification
            assert verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
            return float(verdict.reward)
        finally:
            close = resource_pb2.CloseSessionRequest(session_id=opened.session_id)
            await resource.CloseSession(close, timeout=_CALL_S)

    async def _golds(self, task: rollout_pb2.Task) -> AsyncIterator[Play]:
        if self.name == "nemo_gym":  # the server behind it knows, its rows say how far to count
            row = loads(task.payload_json)
            assert isinstance(row, dict)
            count = row["expected_count"] - row["initial_count"]
            yield Play(
                "gold", task.task_id, "Done.", [("increment_counter", {"count": count})], True
            )
            return
        auditor = self.directory.peer(self.instance, _AUDIT)
        request = verify_pb2.GetExpectedRequest(task=task)
        try:
            reply = await auditor.GetExpected(request, timeout=_CALL_S)
        except MeshError:
            return  # it knows no right answers
        for one in list(reply.answers)[:1]:
            gold = gold_of(one)
            yield Play("gold", task.task_id, gold.message or "Done.", gold.calls, True)

    async def _calls(self, session_id: str, play: Play) -> tuple[list[responses_pb2.Item], bool]:
        items: list[responses_pb2.Item] = []
        for name, arguments in play.calls:
            request = resource_pb2.CallToolRequest(
                session_id=session_id, name=name, arguments=dumps(dict(arguments)),
                request_id=_new(),
            )  # fmt: skip
            reply = await self.directory.peer(self.instance).CallTool(request, timeout=_CALL_S)
            call = responses_pb2.FunctionCall(
                name=name, call_id=request.request_id, arguments=request.arguments
            )
            output = responses_pb2.FunctionCallOutput(call_id=call.call_id, text=reply.text)
            items.append(responses_pb2.Item(function_call=call))
            items.append(responses_pb2.Item(function_call_output=output))
            if reply.done:
                return items, True
        return items, False

    async def _turns(
        self, session_id: str, play: Play, items: list[responses_pb2.Item], rewards: list[float]
    ) -> bool:
        """Says the same until the environment has enough; whether it had."""
        told = 0
        for number in range(MOST_TURNS):
            if number:
                items.append(new_message("assistant", play.message))
            request = resource_pb2.NextTurnRequest(
                session_id=session_id, new_items=items[told:], request_id=_new()
            )
            turn = await self.directory.peer(self.instance).NextTurn(request, timeout=_CALL_S)
            items += turn.items
            told = len(items)
            if turn.HasField("reward"):
                rewards.append(turn.reward)
            if turn.done:
                return True
        return False


@asynccontextmanager
async def shelved(
    name: str, protocols: Sequence[ProtocolName], folder: Path, **config: Any
) -> AsyncIterator[Shelved]:
    """Open an environment with its protocols. `folder`: for files of its tasks."""
    async with AsyncExitStack() as stack:
        options = await _options(name, folder, stack)
        service = ResourceService(
            EnvironmentConfig(
                use=name,
                options=options,
                audit=True,
                verify_timeout_s=_STEP_S,
                turn_timeout_s=_STEP_S,
                tool_timeout_s=_STEP_S,
                protocols=ProtocolsConfig(serve=tuple(protocols), **config),
            ),
            name,
            f"{name}-0",
        )
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        model = CurrentModel()
        for one in service.model_names:
            instance = discovery_pb2.Instance(
                id=one, service=_MODEL, name=one, health=discovery_pb2.HEALTH_SERVING
            )
            directory.add_direct(instance, {_MODEL: model})
        for sandboxes in sandboxes_for([service], None):
            await open_here(sandboxes, directory, stack)
        opened = await open_here(service, directory, stack)
        yield Shelved(name, service, directory, opened, model)


async def _options(name: str, folder: Path, stack: AsyncExitStack) -> dict[str, Any]:
    match name:
        case "harbor":
            tasks = write_tasks(folder, {one: RUNNABLE[one] for one in ("json-first", "older")})
            return {"images": {"*": "host"}, "network": "agent", "tasks": str(tasks)}
        case "mcp":
            server = Path(__file__).parents[1] / "unit/environments/mcp/tool_server.py"
            command = [sys.executable, str(server), "stdio"]
            tools = {"command": command, "tools": ["reverse"], "quiet": True}
            return {
                "servers": {"tools": tools}, "verdict": "exact", "shared": True,
                "start_timeout_s": _STEP_S,
            }  # fmt: skip
        case "nemo_gym":
            return {"url": await stack.enter_async_context(serving(Counter().app))}
        case "code":
            return {"test_timeout_s": 60.0, "suite_timeout_s": 240.0}
    return {}


def _new() -> str:
    return f"shelf-{next(_ids)}"
