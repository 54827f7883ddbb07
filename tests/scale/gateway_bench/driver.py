"""Plays programs: each calls the model so often, with a pause between calls, and keeps its history.

Contenders connect for each rollout and say where its program calls the model; that connection's end
says that the program has ended. All programs of a play begin together, when the last has its place,
and end together, so that a play holds calls alone and no rollout's beginning or end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from tests.scale.gateway_bench.speech import OUTPUT, SPEECHES, Json

_BOUND_S: Final = 120.0


@dataclass(frozen=True)
class Work:
    """What the programs of a play do.

    Attributes:
        dialect: a key of SPEECHES.
        stream: whether answers are streamed.
        programs: how many there are.
        calls: of each.
        model_s: how long the model takes.
        pause_s: how long a program takes between two calls, on average.
    """

    dialect: str
    stream: bool
    programs: int
    calls: int
    model_s: float
    pause_s: float


@dataclass
class Played:
    """What was taken of a play.

    Attributes:
        ms: of each call, less the model's own time.
        cpu_s: of the contender, from the first call to the last.
    """

    ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Place:
    """Where a program calls the model, and what ends its rollout."""

    url: str
    key: str
    ended: Callable[[], None] = lambda: None


class DriverListener:
    """Where contenders connect: `host:port`."""

    def __init__(self) -> None:
        self.address = ""
        self._places: asyncio.Queue[Place] = asyncio.Queue()

    async def places(self, count: int) -> list[Place]:
        """The next so many. Raises TimeoutError where they do not come."""
        async with asyncio.timeout(_BOUND_S):
            return [await self._places.get() for _ in range(count)]

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A rollout of a contender has begun."""
        said = json.loads(await reader.readline())
        await self._places.put(Place(said["url"], said["key"], writer.close))


@asynccontextmanager
async def listening() -> AsyncGenerator[DriverListener]:
    """Until the block ends."""
    opened = DriverListener()
    server = await asyncio.start_server(opened.take, "127.0.0.1", 0, backlog=1024)
    opened.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield opened


async def play(work: Work, places: Sequence[Place], cpu_s: Callable[[], float]) -> Played:
    """Has a program play in each of the places, and ends their rollouts.

    Args:
        cpu_s: the contender's CPU seconds so far.
    """
    played = Played()
    gc.collect()
    gc.disable()  # a pause of it would be in the calls' time
    try:
        async with AsyncExitStack() as stack:
            # A program has connections of its own.
            sessions = [await stack.enter_async_context(_session()) for _ in places]
            before = cpu_s()
            async with asyncio.timeout(_BOUND_S), asyncio.TaskGroup() as group:
                for number, (place, session) in enumerate(zip(places, sessions, strict=True)):
                    group.create_task(_program(work, number, place, session, played))
            played.cpu_s = cpu_s() - before
    finally:
        gc.enable()
        for place in places:
            place.ended()
    return played


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    return aiohttp.ClientSession(connector=connector)


async def _program(
    work: Work, number: int, place: Place, session: aiohttp.ClientSession, played: Played
) -> None:
    speech = SPEECHES[work.dialect]
    headers, url = speech.headers(place.key), place.url + speech.path
    history: list[Json] = speech.begin(f"Repair the lookup of program {number} in parser.py.")
    for turn in range(work.calls):
        # They are not in step, as they would be had all begun at the same moment.
        await asyncio.sleep(random.uniform(0, 2 * work.pause_s))
        body = speech.body(history, stream=work.stream)
        began = time.perf_counter()
        async with session.post(url, data=body, headers=headers) as reply:
            data = await reply.read()
        took = time.perf_counter() - began
        if reply.status != 200:
            raise RuntimeError(f"{url} answers {reply.status}: {data[:300]!r}")
        played.ms.append((took - work.model_s) * 1e3)
        message = speech.streamed(data) if work.stream else speech.whole(data)
        history += [message, speech.output(message, f"{turn}: {OUTPUT}")]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
