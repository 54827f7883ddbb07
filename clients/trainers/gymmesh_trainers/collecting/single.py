"""One mesh for all rollouts of an event loop: for trainers that call a hook for each rollout.

Such a trainer (veRL's agent loops, OpenRLHF's executors) makes a hook object for every rollout and
hands each its own engine. The mesh is opened by the first and kept; a rollout's engine is found by
a context variable, which the calls within one process inherit.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

from gymmesh_model.backends.tokens_in import Generate, Generation, SamplingParams, TokenBackend
from gymmesh_trainers.collecting.collector import TrainerCollector
from gymmesh_trainers.collecting.place import MeshPlace
from gymmesh_trainers.collecting.tasks import TaskLike
from gymmesh_trainers.rollouts import FailedRollout, Rollout

_ENGINE: Final[ContextVar[Generate]] = ContextVar("gymmesh_engine")


class SharedMesh:
    """Rollouts in one environment, each with an engine of its own."""

    def __init__(
        self, place: MeshPlace, tokenizer: Any, backend: dict[str, Any], **settings: Any
    ) -> None:
        self._place = place
        self._tokenizer = tokenizer
        self._backend = backend
        self._settings = settings
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[TrainerCollector]] = (
            WeakKeyDictionary()
        )

    async def run(self, task: TaskLike, engine: Generate) -> Rollout | FailedRollout:
        """A rollout with this engine. Raises what opening the mesh raises."""
        collector = await self._collector()
        token = _ENGINE.set(engine)
        try:
            return await collector.one(task)
        finally:
            _ENGINE.reset(token)

    async def close(self) -> None:
        """Close the mesh of the running event loop."""
        opening = self._open.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).__aexit__(None, None, None)

    async def _collector(self) -> TrainerCollector:
        loop = asyncio.get_running_loop()
        opening = self._open.get(loop)
        if opening is None:
            opening = self._open[loop] = asyncio.create_task(self._opened())
        return await asyncio.shield(opening)

    async def _opened(self) -> TrainerCollector:
        model = TokenBackend(self._tokenizer, _of_this_rollout, **self._backend)
        collector = TrainerCollector(self._place, model=model, **self._settings)
        return await collector.__aenter__()


async def _of_this_rollout(prompt: list[int], params: SamplingParams) -> Generation:
    return await _ENGINE.get()(prompt, params)
