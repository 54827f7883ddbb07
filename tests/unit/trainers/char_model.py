"""A tokenizer of characters with a chat template, and an engine that follows a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymmesh_trainers import Generation, SamplingParams

EOS = 0
_ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}


class CharTokenizer:
    """`<role>text<eos>` for each message; a character is its code point and 10."""

    eos_token_id = EOS
    pad_token_id = None
    chat_template = "characters"

    def encode(self, text: str) -> list[int]:
        return [ord(one) + 10 for one in text]

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        return "".join(chr(one - 10) for one in token_ids if one >= 10)

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> list[int]:
        ids: list[int] = []
        for place, message in enumerate(conversation):
            ids.append(_ROLES[message["role"]])
            ids += self.encode(message.get("content") or "")
            for call in message.get("tool_calls") or ():
                ids += self.encode(f"<tool_call>{call['function']}</tool_call>")
            last = place + 1 == len(conversation)
            if not (last and options.get("continue_final_message")):
                ids.append(EOS)
        if options.get("add_generation_prompt"):
            ids.append(_ROLES["assistant"])
        return ids


class ScriptEngine:
    """Answers by a function of the prompt's text; keeps every prompt that it was given."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.tokenizer = CharTokenizer()
        self.prompts: list[list[int]] = []
        self._answer = answer

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        self.prompts.append(prompt)
        ids = [*self.tokenizer.encode(self._answer(self.tokenizer.decode(prompt))), EOS]
        ids = ids[: params.max_tokens]
        return Generation(ids, [-0.5] * len(ids))
