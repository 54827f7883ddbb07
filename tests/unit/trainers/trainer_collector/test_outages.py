"""What a loop or a notebook that collects hears of an endpoint that is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from gymmesh_trainers import RolloutGroup, collect
from tests.support.endpoint import FakeEndpoint, text


def exact(answer: str, expected_answer: str) -> bool:
    """Whether the answer is the expected one."""
    return answer == expected_answer


class Heard(logging.Handler):
    """Keeps the lines of the model service's log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[logging.LogRecord] = []
        self.any = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record)
        self.any.set()


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, log = Heard(), logging.getLogger("gymmesh.model")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


async def test_an_endpoint_that_is_away_is_logged_and_when_it_is_back(heard: Heard) -> None:
    endpoint = FakeEndpoint(default=text("4"))
    async with endpoint:
        port = urlsplit(endpoint.url).port
        assert port is not None
        await endpoint.stop()
        tasks = [{"prompt": "2 + 2?", "expected_answer": "4", "task_id": str(n)} for n in range(4)]

        async def collected() -> list[RolloutGroup]:
            model = {"model": endpoint.url, "model_name": "m"}
            return [group async for group in collect(exact, tasks, repeats=2, **model)]

        run = asyncio.ensure_future(collected())
        async with asyncio.timeout(120):
            await heard.any.wait()
            await endpoint.start(port)
            groups = await run
    assert [group.rewards for group in groups] == [[1.0, 1.0]] * 4
    lines = heard.lines
    assert {one.levelno for one in lines} == {logging.WARNING}
    assert len(lines) == 2
    assert f"connection refused (POST {endpoint.url}/" in lines[0].getMessage()
    assert f"at {endpoint.url} answers again after" in lines[1].getMessage()
