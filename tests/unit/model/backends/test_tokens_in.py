"""What of a request reaches the chat template and the answer of a TokenBackend."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_responses import items_to_list
from gymmesh_runtime.errors import MeshError
from tests.support.vllm_server import encode
from tests.unit.model.templates import ToyTokenizer, supports

CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


class NotedTokenizer(ToyTokenizer):
    """Notes the options of each rendering."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> list[int]:
        self.options = options
        return super().apply_chat_template(conversation, **options)


async def answered(params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The answer's items to a call, and the template's options."""
    tokenizer = NotedTokenizer(supports("keeps"))

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([*encode(CALL), 2])

    backend = TokenBackend(tokenizer, generate, template={"enable_thinking": True})
    asked = {"input": [{"role": "user", "content": "go"}], **params}
    response = await backend.create(BackendCall(asked, "r", "", None, 60.0))
    return items_to_list(response.output), tokenizer.options


@pytest.mark.parametrize(("effort", "thinks"), [("high", True), ("none", False), (None, True)])
async def test_the_reasoning_effort_reaches_the_template(effort: str | None, thinks: bool) -> None:
    _, options = await answered({"reasoning": {"effort": effort}})
    assert options.get("reasoning_effort") == effort
    assert options["enable_thinking"] == thinks


@pytest.mark.parametrize(("choice", "kind"), [("auto", "function_call"), ("none", "message")])
async def test_no_tool_is_called_where_none_may_be(choice: str, kind: str) -> None:
    [item], _ = await answered({"tools": [TOOL], "tool_choice": choice})
    assert item["type"] == kind
    assert kind != "message" or item["content"][0]["text"] == CALL


async def cut_off(made: Callable[[], Generation], timeout_s: float = 60.0) -> BaseException | None:
    """What a call raises whose engine ignores that it is cancelled, and ends with `made`."""
    began = asyncio.Event()

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        with contextlib.suppress(asyncio.CancelledError):
            began.set()
            await asyncio.Event().wait()
        return made()

    backend = TokenBackend(ToyTokenizer(supports("keeps")), generate)
    asked = {"input": [{"role": "user", "content": "go"}]}
    call = asyncio.ensure_future(backend.create(BackendCall(asked, "r", "", None, timeout_s)))
    await began.wait()
    if timeout_s > 1:
        call.cancel()
    [outcome] = await asyncio.gather(call, return_exceptions=True)
    return outcome if isinstance(outcome, BaseException) else None


def a_part() -> Generation:
    return Generation(encode("par"))


def raises() -> Generation:
    raise RuntimeError("aborted")


@pytest.mark.parametrize("made", [a_part, raises])
async def test_an_engine_that_ignores_a_cancellation_has_no_answer(
    made: Callable[[], Generation], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it, so that what it returns or raises then is of no account."""
    assert isinstance(await cut_off(made), asyncio.CancelledError)
    assert not caplog.messages


@pytest.mark.parametrize("made", [a_part, raises])
async def test_a_part_that_an_engine_returns_when_time_is_up_is_not_an_answer(
    made: Callable[[], Generation],
) -> None:
    error = await cut_off(made, timeout_s=0.01)
    assert isinstance(error, MeshError)
    assert error.reason_name == "MODEL_TIMEOUT"
