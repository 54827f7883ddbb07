"""What of a request reaches the chat template and the answer of a TokenBackend."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.tokens_in import Generation, SamplingParams, TokenBackend
from gymmesh_responses import items_to_list
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
