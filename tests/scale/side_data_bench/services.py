"""The policy and the agent of the bench, as a configuration names them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from gymmesh_agent import Completion, RolloutContext
from gymmesh_agent.tool_loop import ToolLoopAgent
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.engine import Engine
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import options_of
from gymmesh_model.tokens import SideRows
from gymmesh_responses import row_bytes
from tests.scale.side_data_bench.content import rows_of
from tests.scale.side_data_bench.lag import LoopLag
from tests.support.token_servers import ToyTokenizer
from tests.support.vllm_server import END, encode

NAME: Final = "routed_experts"
DTYPE: Final = "int32"
_CALL: Final = '<tool_call>{"name": "add", "arguments": {"left": 2, "right": 3}}</tool_call>'


class ExpertOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """shape: of a token's row. sampled: tokens of an answer. calls: of a rollout. progress: a file
    with the number of rollouts that were read; unread: begin no further rollout before so many are.
    """

    shape: tuple[int, int]
    sampled: int
    calls: int
    progress: str
    unread: int


class ExpertEngine(Engine):
    """Calls a tool until a rollout has its calls, and gives the rows that are new."""

    side_data = (NAME,)
    is_program = False

    def __init__(self, options: ExpertOptions) -> None:
        self._options = options
        self._begun = set[str]()

    async def generate(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        options = self._options
        if params.request_id not in self._begun:
            await self._reader()
            self._begun.add(params.request_id)
        # A message ends with it: the tools, the task, and then answers and what tools returned.
        last = prompt.count(END) // 2 >= options.calls
        text = "x" * (2 * options.sampled)  # two letters are a token
        ids = [*encode(text if last else f"{text}{_CALL}"), END]
        total = len(prompt) + len(ids) - 1  # the last token was read by no forward pass
        assert call.record is not None
        first = call.record.side_rows.get(NAME, 0)
        size = row_bytes(DTYPE, options.shape)
        data = await asyncio.to_thread(rows_of, params.request_id, first, total - first, size)
        rows = SideRows(NAME, DTYPE, options.shape, first, data)
        return Generation(ids, [-0.5] * len(ids), side_data=[rows])

    async def _reader(self) -> None:
        """Waits until the reader is close enough: a trainer paces its rollouts likewise."""
        unread, progress = self._options.unread, Path(self._options.progress)
        # The reader is another process, which can set no event here.
        while len(self._begun) - int(progress.read_text()) >= unread:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class ExpertBackend(TokenBackend):
    """The policy."""

    def __init__(self, name: str, config: ModelConfig) -> None:
        options = options_of(name, config.options, ExpertOptions)
        super().__init__(ToyTokenizer(), ExpertEngine(options), renderer=None)


class TickingAgent(ToolLoopAgent):
    """The default agent in a process whose loop is watched. `options`: `lag`, a file."""

    _ticking: ClassVar[asyncio.Task[None] | None] = None

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({})
        self._lag = LoopLag(Path(options["lag"]))

    async def run(self, context: RolloutContext) -> Completion:
        if TickingAgent._ticking is None:
            TickingAgent._ticking = asyncio.create_task(self._lag.run())
        return await super().run(context)
