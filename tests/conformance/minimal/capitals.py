"""A minimal environment with its verifier: guess the capital of a country.

The payload is {"country": …, "capital": …}. The tool `hint` tells one letter more with each call;
`wait` takes its time, `stumble` fails. With `multi_turn` the environment answers each guess; with
`judges_groups` the repeats are judged together. A task with `judged` has each guess read by the
model at the address `judge`; then one of no text is the environment's fault.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from gymmesh.model.v1 import model_pb2, model_pb2_grpc
from gymmesh.resource.v1 import resource_pb2 as pb
from gymmesh.resource.v1 import resource_pb2_grpc
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2, verify_pb2_grpc
from tests.conformance.minimal.status import OPTIONS, fail, require

_RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
_VERIFY: Final = "gymmesh.verify.v1.VerifyService"
_MOST_GUESSES: Final = 3
_COUNTRIES: Final = (("France", "Paris"), ("Peru", "Lima"), ("Kenya", "Nairobi"))


def _tool(name: str, description: str, key: str, kind: str) -> responses_pb2.Tool:
    schema = {"type": "object", "properties": {key: {"type": kind}}, "required": [key]}
    function = responses_pb2.FunctionTool(
        name=name, description=description, parameters_json=json.dumps(schema).encode()
    )
    return responses_pb2.Tool(function=function)


_TOOLS: Final = (
    _tool("hint", "Tells one more letter of the capital.", "country", "string"),
    _tool("wait", "Waits that many seconds.", "seconds", "number"),
    _tool("stumble", "Fails, as an environment may.", "over", "string"),
)


@dataclass
class _Session:
    answer: pb.CreateSessionResponse
    request: pb.CreateSessionRequest
    country: str
    capital: str
    letters: int = 0
    guesses: int = 0
    falls: int = 0
    done: bool = False
    # By request_id: the request, by which one that is reused is told, and its answer.
    calls: dict[str, tuple[Any, asyncio.Task[Any]]] = field(default_factory=dict)
    turns: dict[str, tuple[Any, pb.NextTurnResponse]] = field(default_factory=dict)


class Capitals(
    resource_pb2_grpc.ResourceServiceServicer,
    verify_pb2_grpc.VerifyServiceServicer,
):
    """The environment and its verifier: both services at one address."""

    def __init__(
        self,
        *,
        multi_turn: bool = False,
        judges_groups: bool = False,
        session_limit: int = 0,
        judge: str = "",
    ) -> None:
        self._judge_at = judge
        self._sessions: dict[str, _Session] = {}
        self._about = pb.GetEnvironmentResponse(
            name="capitals",
            version="1",
            description="Guess the capital of a country.",
            multi_turn=multi_turn,
            retry_safe=True,
            judges_groups=judges_groups,
            reward_rule=pb.REWARD_RULE_VERIFIER_ONLY,
            session_limit=session_limit,
            models=["judge"] if judge else [],
            instance_id=f"capitals-{secrets.token_hex(4)}",
            contract_version="1.0",
        )

    async def GetEnvironment(self, request: Any, context: Any) -> Any:
        """What it is."""
        return self._about

    async def ListTasks(self, request: Any, context: Any) -> Any:
        """The example tasks; the token is the index to go on from."""
        tasks = [_example(*pair) for pair in _COUNTRIES]
        page, token = await _page(tasks, request, context)
        return pb.ListTasksResponse(tasks=page, next_page_token=token)

    def open_sessions(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    async def ListTools(self, request: Any, context: Any) -> Any:
        """The tools, likewise."""
        page, token = await _page(_TOOLS, request, context)
        return pb.ListToolsResponse(tools=page, next_page_token=token)

    async def CreateSession(self, request: Any, context: Any) -> Any:
        """Opens a session, or returns the one with this request_id."""
        await require(context, request, f"{_RESOURCE}/CreateSession", "task", "request_id")
        for session in self._sessions.values():
            if session.request.request_id == request.request_id:
                await _compare(session.request, request, context)
                return session.answer
        country, capital = await self._row(request.task, context)
        limit = self._about.session_limit
        if limit and len(self._sessions) >= limit:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            await fail(context, code, "SESSION_LIMIT", "too many sessions", limit=str(limit))
        seeded = next((one for one in (request, request.task) if one.HasField("seed")), None)
        seed = secrets.randbits(31) if seeded is None else seeded.seed
        answer = pb.CreateSessionResponse(
            session_id=secrets.token_hex(16),
            instance_id=self._about.instance_id,
            tools=_TOOLS,
            seed=seed,
            environment_version=self._about.version,
            multi_turn=self._about.multi_turn,
        )
        self._sessions[answer.session_id] = _Session(answer, request, country, capital)
        return answer

    async def CallTool(self, request: Any, context: Any) -> Any:
        """Runs a tool once for each request_id."""
        method = f"{_RESOURCE}/CallTool"
        await require(context, request, method, "session_id", "name", "request_id")
        session = await self._session(request.session_id, context)
        earlier, call = session.calls.get(request.request_id, (request, None))
        await _compare(earlier, request, context)
        if call is None:
            call = asyncio.create_task(_run_tool(session, request.name, request.arguments))
            session.calls[request.request_id] = request, call
        await asyncio.wait([call])
        if call.cancelled():
            await self._no_session(request.session_id, context)
        if (fault := call.exception()) is not None:
            details = {"environment": "capitals", "stage": "call_tool", "exception": str(fault)}
            await fail(context, grpc.StatusCode.INTERNAL, "ENVIRONMENT_FAULT", "fell", **details)
        return call.result()

    async def NextTurn(self, request: Any, context: Any) -> Any:
        """Answers a guess."""
        method = f"{_RESOURCE}/NextTurn"
        await require(context, request, method, "session_id", "request_id")
        if not self._about.multi_turn:
            code = grpc.StatusCode.UNIMPLEMENTED
            await fail(context, code, "NOT_OFFERED", "there are no turns", method=method)
        session = await self._session(request.session_id, context)
        earlier, known = session.turns.get(request.request_id, (request, None))
        await _compare(earlier, request, context)
        if known is not None:
            return known
        if session.done:
            code = grpc.StatusCode.FAILED_PRECONDITION
            details = {"session_id": request.session_id, "state": "done"}
            await fail(context, code, "SESSION_STATE", "the game is over", **details)
        session.guesses += 1
        usage = await self._consult(session.request.task, request.new_items)
        if usage and not _said(request.new_items).strip():
            details = {"environment": "capitals", "stage": "next_turn", "exception": "silence"}
            code = grpc.StatusCode.INTERNAL
            await fail(context, code, "ENVIRONMENT_FAULT", "no guess", usage, **details)
        right = _is_right(request.new_items, session.capital)
        session.done = right or session.guesses >= _MOST_GUESSES
        answer = pb.NextTurnResponse(
            reward=1.0 if right else 0.0, done=session.done, model_usage=usage
        )
        if not session.done:
            message = responses_pb2.Message(role="user", text="No. Guess again.")
            answer.items.add(message=message)
        session.turns[request.request_id] = request, answer
        return answer

    async def PlayEpisode(self, request: Any, context: Any) -> Any:
        """It plays no episodes itself."""
        method = f"{_RESOURCE}/PlayEpisode"
        code = grpc.StatusCode.UNIMPLEMENTED
        await fail(context, code, "NOT_OFFERED", "agents play", method=method)

    async def CloseSession(self, request: Any, context: Any) -> Any:
        """Closes a session, cancelling what runs in it."""
        await require(context, request, f"{_RESOURCE}/CloseSession", "session_id")
        session = self._sessions.pop(request.session_id, None)
        for _, call in session.calls.values() if session else ():
            call.cancel()
        return pb.CloseSessionResponse()

    async def Verify(self, request: Any, context: Any) -> Any:
        """Right is 1.0, anything else 0.0. Needs no session."""
        await require(context, request, f"{_VERIFY}/Verify", "task", "stop_reason")
        _, capital = await self._row(request.task, context)
        usage = await self._consult(request.task, request.transcript)
        if usage and not _said(request.transcript).strip():
            code, details = grpc.StatusCode.INTERNAL, {"verifier": "capitals"}
            await fail(context, code, "VERIFIER_FAULT", "no guess", usage, **details)
        if self._about.judges_groups:
            verdict = rollout_pb2.Verification(
                status=rollout_pb2.VERIFICATION_STATUS_PENDING,
                reason="judged with its group",
                verifier="capitals",
                verifier_version="1",
            )
        else:
            verdict = _verdict(1.0 if _is_right(request.transcript, capital) else 0.0)
            verdict.model_usage.extend(usage)
        return verify_pb2.VerifyResponse(verification=verdict)

    async def VerifyGroup(self, request: Any, context: Any) -> Any:
        """Right answers share one point."""
        method = f"{_VERIFY}/VerifyGroup"
        if not self._about.judges_groups:
            code = grpc.StatusCode.UNIMPLEMENTED
            await fail(context, code, "NOT_OFFERED", "groups are not judged", method=method)
        await require(context, request, method, "task", "members")
        _, capital = await self._row(request.task, context)
        right = [_is_right(member.transcript, capital) for member in request.members]
        verdicts = [
            verify_pb2.GroupVerdict(
                rollout_id=member.rollout_id,
                verification=_verdict(1.0 / sum(right) if good else 0.0),
            )
            for member, good in zip(request.members, right, strict=True)
        ]
        return verify_pb2.VerifyGroupResponse(verdicts=verdicts)

    async def _consult(
        self, task: rollout_pb2.Task, items: Sequence[responses_pb2.Item]
    ) -> list[rollout_pb2.ModelCallUsage]:
        """Has a model read the guess, where the task wants that; what it consumed."""
        if not self._judge_at or not json.loads(task.payload_json).get("judged"):
            return []
        params = responses_pb2.ResponseParams(input_text=f"A guess: {_said(items)}")
        async with grpc.aio.insecure_channel(self._judge_at, options=OPTIONS) as channel:
            model: Any = model_pb2_grpc.ModelServiceStub(channel)
            request = model_pb2.CreateResponseRequest(params=params)
            answer = await model.CreateResponse(request, timeout=10.0)
        used = answer.response.usage
        return [
            rollout_pb2.ModelCallUsage(
                model="judge",
                calls=1,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
            )
        ]

    async def _row(self, task: rollout_pb2.Task, context: Any) -> tuple[str, str]:
        try:
            row = json.loads(task.payload_json or b"{}")
        except ValueError:
            row = {}
        for name in ("country", "capital"):
            if not isinstance(row, dict) or not isinstance(row.get(name), str):
                code = grpc.StatusCode.INVALID_ARGUMENT
                details = {"task_id": task.task_id, "field": name}
                await fail(context, code, "TASK_INVALID", f"the task has no {name}", **details)
        return row["country"], row["capital"]

    async def _session(self, session_id: str, context: Any) -> _Session:
        session = self._sessions.get(session_id)
        return session or await self._no_session(session_id, context)

    async def _no_session(self, session_id: str, context: Any) -> Any:
        details = {"session_id": session_id, "instance_id": self._about.instance_id}
        code = grpc.StatusCode.NOT_FOUND
        await fail(context, code, "SESSION_NOT_FOUND", "there is no such session", **details)


async def _run_tool(session: _Session, name: str, arguments: bytes) -> pb.CallToolResponse:
    keys = {
        "hint": ("country", str),
        "wait": ("seconds", int | float),
        "stumble": ("over", str),
    }
    if name not in keys:
        text = f"There is no tool {name!r}. The tools are hint, wait and stumble."
        return _told(rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL, text)
    key, kind = keys[name]
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not isinstance(given.get(key), kind):
        text = f"The arguments must be a JSON object with {key!r}."
        return _told(rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS, text)
    if name == "stumble":
        session.falls += 1
        raise RuntimeError(f"fall {session.falls}")
    if name == "wait":
        await asyncio.sleep(min(given[key], 60))
        return _told(rollout_pb2.TOOL_OUTCOME_OK, "waited")
    if given[key] != session.country:
        text = f"Nobody asked for {given[key]!r}. Ask for {session.country!r}."
        return _told(rollout_pb2.TOOL_OUTCOME_TOOL_ERROR, text)
    session.letters += 1
    return _told(
        rollout_pb2.TOOL_OUTCOME_OK, f"It begins with {session.capital[: session.letters]}"
    )


def _told(outcome: rollout_pb2.ToolOutcome.ValueType, text: str) -> pb.CallToolResponse:
    return pb.CallToolResponse(outcome=outcome, text=text.encode())


def _verdict(reward: float) -> rollout_pb2.Verification:
    return rollout_pb2.Verification(
        status=rollout_pb2.VERIFICATION_STATUS_VERIFIED,
        reward=reward,
        verifier="capitals",
        verifier_version="1",
    )


def _is_right(items: Sequence[responses_pb2.Item], capital: str) -> bool:
    """Whether the model's last message names the capital."""
    return capital.lower() in _said(items).lower()


def _said(items: Sequence[responses_pb2.Item]) -> str:
    """The text of the model's last message."""
    said = [item.message for item in items if item.message.role == "assistant"]
    if not said:
        return ""
    return " ".join((said[-1].text, *(part.output_text.text for part in said[-1].parts.parts)))


def _example(country: str, capital: str) -> rollout_pb2.Task:
    message = responses_pb2.Message(role="user", text=f"What is the capital of {country}?")
    params = responses_pb2.ResponseParams(input=[responses_pb2.Item(message=message)])
    payload = json.dumps({"country": country, "capital": capital}).encode()
    return rollout_pb2.Task(
        task_id=country.lower(), environment="capitals", params=params, payload_json=payload
    )


async def _compare(earlier: Any, request: Any, context: Any) -> None:
    if earlier != request:
        code = grpc.StatusCode.FAILED_PRECONDITION
        details = {"request_id": request.request_id}
        await fail(context, code, "REQUEST_ID_REUSED", "it came with another request", **details)


async def _page(elements: Sequence[Any], request: Any, context: Any) -> tuple[Sequence[Any], str]:
    tokens = ["", *map(str, range(1, len(elements)))]
    if request.page_size < 0 or request.page_token not in tokens:
        name = "page_size" if request.page_size < 0 else "page_token"
        code = grpc.StatusCode.INVALID_ARGUMENT
        await fail(context, code, "FIELD_INVALID", "cannot be", field=name)
    start = int(request.page_token or 0)
    end = start + (request.page_size or 100)
    return elements[start:end], str(end) if end < len(elements) else ""
