"""Servers of OpenEnv that die, hang, or say what they must not: typed failures, never a reward."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.environments.openenv import OpenEnvEnvironment
from gymmesh_runtime.errors import RULES
from tests.unit.environments.openenv.openenv_server import (
    Counting,
    OpenEnvServer,
    answer,
    serving,
)
from tests.unit.environments.openenv.test_environment import bridged, fails, moved
from tests.unit.environments.waiting import until
from tests.unit.resource.served import served

Reason = errors_pb2.ErrorReason
FAULT = Reason.ERROR_REASON_ENVIRONMENT_FAULT


def observed(reward: str = "1", done: str = "false", observation: str = "{}") -> str:
    data = f'{{"observation": {observation}, "reward": {reward}, "done": {done}}}'
    return f'{{"type": "observation", "data": {data}}}'


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("garbage", "not JSON"),
        ("[]", "not an object"),
        (b"\x00", "closed"),
        ('{"type": "observation"}', "without data"),
        ('{"type": "state", "data": {}}', "answered a message 'step' with 'state'"),
        ("[" * 60_000, "not JSON"),
        ('"' + "x" * 70_000 + '"', "closed"),
        (observed(reward="NaN"), "not JSON"),
        (observed(reward='"0.5"'), "its reward is '0.5'"),
        (observed(reward="1e999"), "not JSON"),
        (observed(reward="[]"), "its reward is '[]'"),
        (observed(reward="1" + "0" * 400), "its reward is"),
        (observed(done='"yes"'), "its `done` is 'yes'"),
        (observed(observation="3"), "its observation is not an object"),
        ('{"type": "error", "data": {"code": "SESSION_ERROR", "message": "m"}}', "SESSION_ERROR"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_no_answer_is_a_fault(raw: Any, said: str) -> None:
    server = OpenEnvServer()
    server.raw = raw
    async with bridged(server, options={"max_message_bytes": 65_536}) as mesh:
        error = await fails(moved(mesh, (await mesh.create()).session_id, 1))
    assert error.reason == FAULT
    assert error.metadata["stage"] == "step"
    if raw != '"' + "x" * 70_000 + '"':
        assert said in error.message


async def test_a_connection_that_closes_is_a_fault_and_is_not_opened_again() -> None:
    server = OpenEnvServer()
    async with bridged(server) as mesh:
        session = (await mesh.create()).session_id
        server.closes = True
        assert (await fails(moved(mesh, session, 1))).reason == FAULT
        server.closes = False
        again = await fails(moved(mesh, session, 1))
    assert (again.reason, len(server.sockets)) == (FAULT, 1)
    assert "closed the connection" in again.message


async def test_a_server_that_does_not_answer_is_a_time_out_and_its_late_answer_is_nobodys() -> None:
    server = OpenEnvServer()
    server.hangs = True
    async with bridged(server, tool_timeout_s=0.3) as mesh:
        session = (await mesh.create()).session_id
        late = await fails(moved(mesh, session, 1))
        server.hangs = False
        again = await fails(moved(mesh, session, 2))
    assert late.reason == Reason.ERROR_REASON_TOOL_TIMEOUT
    assert (again.reason, "abandoned" in again.message) == (FAULT, True)


async def test_an_episode_that_is_over_at_reset_is_a_fault() -> None:
    class Over(Counting):
        def reset(self, data: dict[str, Any]) -> dict[str, Any]:
            return answer({}, 1.0, done=True)

    server = OpenEnvServer(Over)
    async with bridged(server) as mesh:
        error = await fails(mesh.create())
    assert (error.reason, error.metadata["stage"], server.open) == (FAULT, "reset", 0)


@pytest.mark.parametrize("schema", ["no", {"oneOf": [{"type": "string"}]}, [], {"type": 7}])
async def test_a_schema_that_is_none_is_a_fault_and_leaves_no_connection(schema: Any) -> None:
    schema = schema if schema != {"type": 7} else {"properties": {"a": {"type": 7}}}
    server = OpenEnvServer(schema=schema)
    async with bridged(server) as mesh:
        error = await fails(mesh.create())
        await until(lambda: not server.open)
    assert (error.reason, error.metadata["stage"]) == (FAULT, "session_tools")


async def test_no_server_is_a_fault() -> None:
    async with serving(OpenEnvServer().app) as url:
        pass
    async with served(OpenEnvEnvironment(url=url)) as mesh:
        assert (await fails(mesh.create())).reason == FAULT


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        (401, Reason.ERROR_REASON_CREDENTIAL_INVALID, "with status 401; check the option headers"),
        (403, Reason.ERROR_REASON_NOT_PERMITTED, "with status 403; check the option headers"),
        (404, Reason.ERROR_REASON_NOT_OFFERED, "with status 404; check the option url"),
        (410, Reason.ERROR_REASON_NOT_OFFERED, "with status 410; check the option url"),
        (429, FAULT, "answered 429"),
        (503, FAULT, "answered 503"),
    ],
)
@pytest.mark.parametrize("path", ["/ws", "/schema"])
async def test_a_refused_request_is_final_and_names_the_option(
    path: str, status: int, reason: Any, said: str
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    @web.middleware
    async def door(request: web.Request, handler: Any) -> web.StreamResponse:
        return await (refuse if request.path == path else handler)(request)

    app = OpenEnvServer().app
    app.middlewares.append(door)
    async with serving(app) as url, served(OpenEnvEnvironment(url=url)) as mesh:
        error = await fails(mesh.create())
    assert (error.reason, said in error.message) == (reason, True), error.message
    assert RULES[reason].retry_safe == (reason == FAULT)


async def test_a_full_server_is_tried_again_later() -> None:
    server = OpenEnvServer(most=1)
    async with bridged(server) as mesh:
        session = (await mesh.create()).session_id
        full = await fails(mesh.create())
        assert (full.reason, "max_sessions" in full.message) == (
            Reason.ERROR_REASON_SESSION_LIMIT,
            True,
        )
        await mesh.close(session)
        await until(lambda: not server.open)
        assert (await mesh.create()).session_id


async def test_sessions_beyond_the_bound_wait_for_one_to_end() -> None:
    server = OpenEnvServer(most=1)
    async with bridged(server, options={"max_sessions": 1}) as mesh:
        first = (await mesh.create()).session_id
        second = asyncio.create_task(mesh.create())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(second), 0.2)
        assert not second.done()
        await mesh.close(first)
        assert (await second).session_id
    assert server.peak == 1


async def test_pings_of_the_server_are_answered_while_the_model_thinks() -> None:
    server = OpenEnvServer()
    async with bridged(server) as mesh:
        session = (await mesh.create()).session_id
        await server.sockets[0].ping(b"there?")
        await until(lambda: server.pongs)
        assert (await moved(mesh, session, 1)).reward == 0.5


async def test_a_message_that_nobody_asked_for_ends_the_connection() -> None:
    server = OpenEnvServer()
    async with bridged(server) as mesh:
        session = (await mesh.create()).session_id
        await server.sockets[0].send_str(observed(reward="100", done="true"))
        await until(lambda: not server.open)
        error = await fails(moved(mesh, session, 1))
    assert (error.reason, "unexpected message" in error.message) == (FAULT, True)


async def test_a_verdict_stands_when_the_server_is_gone_after_the_last_step() -> None:
    server = OpenEnvServer()
    async with bridged(server) as mesh:
        session = (await mesh.create()).session_id
        assert (await moved(mesh, session, 3)).done
        await server.sockets[0].close()
        verdict = await mesh.verify(session)
    assert verdict.reward == 1.5
    assert b"closed the connection" in verdict.evidence_json


def test_an_address_that_is_none_is_refused() -> None:
    for url in ("127.0.0.1:8000", "ftp://x", "http://", "http://x?a=1"):
        with pytest.raises(ValueError, match="url is"):
            OpenEnvEnvironment(url=url)
