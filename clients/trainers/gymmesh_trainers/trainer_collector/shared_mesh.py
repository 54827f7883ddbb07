"""One mesh for all rollouts of an event loop: for trainers that call a hook for rollouts.

Such a trainer (veRL's agent loops, OpenRLHF's executors, SkyRL's generator) hands each rollout or
batch an engine of its own. The mesh is opened by the first and kept; the engine is found by a
context variable, which the calls within one process inherit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

from gymmesh_model.backends.engine import Generate
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_trainers.trainer_collector.collector import TrainerCollector
from gymmesh_trainers.trainer_collector.place import MeshPlace
from gymmesh_trainers.trainer_collector.settings import Settings

_ENGINE: Final[ContextVar[Generate]] = ContextVar("gymmesh_engine")


class SharedMesh:
    """Rollouts in one environment, each with an engine of its own."""

    def __init__(
        self, place: MeshPlace, tokenizer: Any, backend: Mapping[str, Any], **settings: Any
    ) -> None:
        Settings.of(settings)  # says at once what is wrong with them
        self._place = place
        self._tokenizer = tokenizer
        self._backend = backend
        self._settings = settings
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[TrainerCollector]] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def collector(self, engine: Generate) -> AsyncIterator[TrainerCollector]:
        """Rollouts that this one is asked for meanwhile are sampled by the engine. Raises what
        opening the mesh raises.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            self._open[loop] = asyncio.create_task(self._opened())
        collector = await asyncio.shield(self._open[loop])
        token = _ENGINE.set(engine)
        try:
            yield collector
        finally:
            _ENGINE.reset(token)

    async def close(self) -> None:
        """Close the mesh of the running event loop."""
        opening = self._open.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).__aexit__(None, None, None)

    async def _opened(self) -> TrainerCollector:
        given = {"side_data": list(self._settings.get("side_data", ())), **self._backend}
        model = TokenBackend(self._tokenizer, _of_this_rollout, **given)
        collector = TrainerCollector(self._place, model=model, **self._settings)
        try:
            return await collector.__aenter__()
        except BaseException:
            # The next rollout tries again: a mesh elsewhere may be there by then.
            self._open.pop(asyncio.get_running_loop(), None)
            raise


async def _of_this_rollout(prompt: list[int], params: SamplingParams) -> Generation:
    return await _ENGINE.get()(prompt, params)
