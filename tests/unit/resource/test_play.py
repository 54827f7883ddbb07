"""Episodes that an environment plays itself: once, and for as long as its caller waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource import Environment, ModelEndpoint, Rollout, Session, Turn
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.environments import Notebook
from tests.unit.resource.served import TIMEOUT, Served, new_id, served, task

KEY = "kept-by-nobody-0123456789"


@dataclass
class Played:
    """What an episode leaves."""

    by: str = ""


class Player(Environment[Played]):
    """Plays as its task says."""

    state = Played

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self.endpoints: list[ModelEndpoint] = []

    async def play(self, session: Session[Played], endpoint: ModelEndpoint) -> None:
        self.endpoints.append(endpoint)
        self.started.set()
        try:
            if session.task.payload.get("hang"):
                await asyncio.Event().wait()
            if session.task.payload.get("breaks"):
                raise RuntimeError(f"cannot log in with {endpoint.key}")
        finally:
            self.ended.set()
        session.state.by = endpoint.model

    async def next_turn(self, session: Session[Played], new: Any) -> Turn:
        return Turn("go on")

    def verify(self, session: Session[Played], rollout: Rollout) -> float:
        if not session.state.by:
            raise RuntimeError("not played")
        return 1.0


@asynccontextmanager
async def listening() -> AsyncIterator[str]:
    """The base URL of something that takes connections."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def play(
    mesh: Served, session_id: str, base_url: str, timeout: float = TIMEOUT
) -> resource_pb2.PlayEpisodeResponse:
    endpoint = resource_pb2.ModelEndpoint(base_url=base_url, key=KEY, model="policy")
    request = resource_pb2.PlayEpisodeRequest(session_id=session_id, endpoint=endpoint)
    return await mesh.resource.PlayEpisode(request, timeout=timeout)  # type: ignore[no-any-return]


async def refused(awaited: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await awaited
    assert KEY not in f"{caught.value.message} {dict(caught.value.metadata)}"
    return caught.value


async def about(mesh: Served) -> resource_pb2.GetEnvironmentResponse:
    request = resource_pb2.GetEnvironmentRequest()
    return await mesh.resource.GetEnvironment(request, timeout=TIMEOUT)  # type: ignore[no-any-return]


async def test_it_plays_once_and_is_judged_by_what_that_left() -> None:
    environment = Player()
    async with served(environment) as mesh, listening() as url:
        assert (await about(mesh)).plays
        session = (await mesh.create()).session_id
        await play(mesh, session, url)
        assert environment.endpoints == [ModelEndpoint(url, KEY, "policy")]
        assert KEY not in repr(environment.endpoints)
        error = await refused(play(mesh, session, url))
        assert (error.reason_name, error.metadata["state"]) == ("SESSION_STATE", "played")
        error = await refused(mesh.turn(session))
        assert (error.reason_name, error.metadata["state"]) == ("SESSION_STATE", "done")
        assert (await mesh.verify(session)).reward == 1.0


async def test_one_that_does_not_play_says_so() -> None:
    async with served(Notebook()) as mesh, listening() as url:
        assert not (await about(mesh)).plays
        session = (await mesh.create()).session_id
        assert (await refused(play(mesh, session, url))).reason_name == "NOT_OFFERED"


async def test_options_may_decide_that_it_does_not_play() -> None:
    class Chooser(Player):
        plays = False

    async with served(Chooser()) as mesh:
        assert not (await about(mesh)).plays


async def test_a_session_that_is_not_there() -> None:
    async with served(Player()) as mesh, listening() as url:
        assert (await refused(play(mesh, new_id(), url))).reason_name == "SESSION_NOT_FOUND"


async def test_a_fault_has_its_place_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Player()) as mesh, listening() as url:
        session = (await mesh.create(task(breaks=True))).session_id
        with caplog.at_level(logging.ERROR):
            error = await refused(play(mesh, session, url))
        assert error.reason_name == "ENVIRONMENT_FAULT"
        assert error.metadata["stage"] == "play"
        assert (await refused(mesh.verify(session))).reason_name == "VERIFIER_FAULT"


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9/v1", "nowhere", "http://[/v1"])
async def test_an_endpoint_that_is_not_reached_is_refused_before_it_plays(base_url: str) -> None:
    environment = Player()
    async with served(environment) as mesh:
        session = (await mesh.create()).session_id
        error = await refused(play(mesh, session, base_url))
        assert error.reason_name == "FIELD_INVALID"
        assert error.metadata["field"] == "endpoint.base_url"
        assert environment.endpoints == []


@pytest.mark.parametrize("how", ["cancelled", "late", "closed"])
async def test_it_ends_with_its_caller_and_with_its_session(how: str) -> None:
    environment = Player()
    async with served(environment) as mesh, listening() as url:
        hang = task(hang=True)
        session = (await mesh.create(hang)).session_id
        timeout = 5.0 if how == "late" else TIMEOUT
        call = asyncio.create_task(play(mesh, session, url, timeout))
        await environment.started.wait()
        if how == "cancelled":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        elif how == "closed":
            await mesh.close(session)
            assert (await refused(call)).reason_name == "SESSION_NOT_FOUND"
        else:
            assert (await refused(call)).reason_name == "DEADLINE_PASSED"
        await environment.ended.wait()
        if how != "closed":
            # The order of calls is free again, and nothing is there to judge by.
            assert (await refused(mesh.verify(session, hang))).reason_name == "VERIFIER_FAULT"


async def test_a_session_that_plays_is_not_idle() -> None:
    environment = Player()
    now = 0.0
    async with (
        served(environment, clock=lambda: now, session_idle_s=10) as mesh,
        listening() as url,
    ):
        session = (await mesh.create(task(hang=True))).session_id
        call = asyncio.create_task(play(mesh, session, url))
        await environment.started.wait()
        now = 1000.0
        assert await mesh.service.sessions.sweep() == 0
        call.cancel()
        await asyncio.wait((call,))
