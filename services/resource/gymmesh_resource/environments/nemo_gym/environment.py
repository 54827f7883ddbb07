"""A NeMo Gym resources server as an environment.

Task rows are the server's own: the tools are those of `responses_create_params`, and every
other key goes to the server when the session is seeded and when it is verified.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from http.cookies import SimpleCookie
from typing import Annotated, Any

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict
from gymmesh_resource.environments.nemo_gym.client import Client, NoAnswer, ServerAnswer, check_url
from gymmesh_resource.environments.nemo_gym.documents import (
    BadVerdict,
    row_of,
    tool_names,
    verdict_of,
    verify_body,
)
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.errors import MeshError

_LOGGER = logging.getLogger("gymmesh.resource.nemo_gym")
_Reason = errors_pb2.ErrorReason
_FAULT = _Reason.ERROR_REASON_ENVIRONMENT_FAULT
_VERIFIER_FAULT = _Reason.ERROR_REASON_VERIFIER_FAULT
# What a proxy answers for a server that is not there; the server's own errors are 500.
_GATEWAY = (502, 503, 504)
# Endpoints that are no tools: a model that could call them would choose its own reward.
_RESERVED = frozenset({"seed_session", "verify", "aggregate_metrics", "run", "close"})
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SHOWN = 300


@dataclass(slots=True)
class _Remote:
    """The server's part of a session: its cookies, and what it answered when it was seeded."""

    cookies: SimpleCookie = field(default_factory=SimpleCookie)
    seeded: dict[str, Any] = field(default_factory=dict)


class NemoGymEnvironment(Environment[_Remote]):
    """Tasks, tools and verdicts of a NeMo Gym resources server, over its HTTP API.

    The reward is the server's; other numbers of its verdict are components.
    """

    version = "1"
    in_order = True
    verify_needs_session = True
    keep_state = False  # the state is at the server
    reward_range = (-math.inf, math.inf)  # the server's own, which it does not declare
    examples = "tasks.jsonl"

    def __init__(
        self,
        *,
        url: str,
        headers: dict[str, str] | None = None,
        close_path: str | None = None,
        max_connections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 512,
        max_answer_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = 16 << 20,
    ) -> None:
        """Options.

        url: the server's root, such as http://127.0.0.1:8000.
        headers: sent with every request.
        close_path: posted to when a session ends, for servers that free something then, with
            what `/seed_session` answered as the body.
        max_connections: how many requests may be under way. max_answer_bytes: of one answer.
        """
        self._url = check_url(url)
        self._close_path = (close_path or "").strip("/")
        self._connect = partial(
            Client,
            self._url,
            headers=headers or {},
            max_connections=max_connections,
            max_bytes=max_answer_bytes,
        )
        self._client: Client | None = None

    async def open(self) -> None:
        """Get the HTTP client ready; the server may still be starting."""
        self._client = self._connect()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def check_task(self, task: Task) -> None:
        """No tool may have the name of one of the server's own endpoints, or lead to one."""
        row_of(task)
        for name in tool_names(task):
            if name in _RESERVED or not _NAME.fullmatch(name):
                raise TaskInvalid(
                    "responses_create_params.tools",
                    f"has a tool {name!r}, which is no tool's name or that of another endpoint",
                )

    async def create_state(self, task: Task, seed: int) -> _Remote:
        """Seed a session of the server with the task's row."""
        remote = _Remote()
        answer = await self._post("seed_session", row_of(task), remote, _FAULT)
        if not answer.ok:
            raise self._refused("seed_session", answer, _FAULT)
        try:
            seeded = loads(answer.text)
        except CodecError:
            seeded = None
        if isinstance(seeded, dict):
            remote.seeded = seeded
        return remote

    async def close_session(self, session: Session[_Remote]) -> None:
        """Tell the server, where it wants to know."""
        if not self._close_path:
            return
        answer = await self._post(self._close_path, session.state.seeded, session.state, _FAULT)
        if not answer.ok:
            _LOGGER.warning("%s/%s answered %d", self._url, self._close_path, answer.status)

    async def call_other(
        self, session: Session[_Remote], name: str, arguments: dict[str, Any]
    ) -> str:
        """One of the row's tools: a POST to the endpoint of its name.

        What the server answers is shown to the model, errors included.
        """
        answer = await self._post(name, arguments, session.state, _FAULT)
        if answer.status in _GATEWAY:
            raise self._error(name, f"it answered {answer.status}", _FAULT)
        if not answer.ok:
            raise ToolError(answer.text)
        return answer.text

    async def verify(self, session: Session[_Remote], rollout: Rollout) -> Verdict:
        """The server's verdict on the whole rollout."""
        body = verify_body(
            rollout,
            response_id=f"resp_{rollout.rollout_id or secrets.token_hex(12)}",
            created_at=time.time(),
        )
        answer = await self._post("verify", body, session.state, _VERIFIER_FAULT)
        if not answer.ok:
            raise self._refused("verify", answer, _VERIFIER_FAULT)
        try:
            return verdict_of(loads(answer.text), body)
        except CodecError:
            problem = "its answer is no JSON"
        except BadVerdict as error:
            problem = f"its answer is no verdict: {error}"
        raise self._error("verify", problem, _VERIFIER_FAULT)

    async def _post(
        self, name: str, body: Any, remote: _Remote, reason: _Reason.ValueType
    ) -> ServerAnswer:
        if self._client is None:
            raise RuntimeError("the environment is not open")
        try:
            return await self._client.post(name, body, remote.cookies)
        except NoAnswer as error:
            raise self._error(name, str(error), reason) from error

    def _refused(
        self, name: str, answer: ServerAnswer, reason: _Reason.ValueType
    ) -> MeshError | TaskInvalid:
        """The error for an HTTP error; TASK_INVALID where the server names a key of the row."""
        key, problem = _bad_key(answer)
        if key and key.split(".")[0] != "response":
            return TaskInvalid(key, f"is refused by the server's {name}: {problem}")
        detail = f": {key}: {problem}" if key else ""
        # The server's own text goes to the log: it may hold what must not be in a row.
        _LOGGER.error("%s/%s answered %d: %.2000s", self._url, name, answer.status, answer.text)
        return self._error(name, f"it answered {answer.status}{detail}", reason)

    def _error(self, name: str, problem: str, reason: _Reason.ValueType) -> MeshError:
        what = "verifier" if reason == _VERIFIER_FAULT else "environment"
        return MeshError(
            reason,
            f"The NeMo Gym server at {self._url} failed in {name}: {problem}.",
            metadata={what: "nemo_gym", "stage": name},
        )


def _bad_key(answer: ServerAnswer) -> tuple[str, str]:
    """The key that a 422 of the server's framework (FastAPI) is about, and the problem."""
    if answer.status != 422:
        return "", ""
    try:
        detail = loads(answer.text)["detail"][0]
        place, problem = detail["loc"], str(detail["msg"])
        # The first part is "body".
        return ".".join(map(str, place[1:])), problem[:_SHOWN]
    except (CodecError, LookupError, TypeError):
        return "", ""
