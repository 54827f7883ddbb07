"""One rollout: two model calls by token ids, a tool call, a verdict by string match."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gymmesh_model.tool_calls import TOOL_PARSERS

REPEATS: Final = 8
QUESTION: Final = "What is 2 + 3?"
WANTED: Final = "5"
CALL: Final = '<tool_call>\n{"name": "add", "arguments": {"left": 2, "right": 3}}\n</tool_call>'
ANSWER: Final = "The sum is 5."
END: Final = "<|im_end|>"
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
            "required": ["left", "right"],
        },
    },
}
_ROLES: Final = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
_FIRST: Final = 10  # the token of the first character


class Measured(NamedTuple):
    """What a contender measured.

    Attributes:
        cpu_s: CPU seconds of its process.
        wall_s: seconds.
        late_s: from a group's last token to the group; empty where it has no groups.
    """

    cpu_s: float
    wall_s: float
    late_s: Sequence[float] = ()


class CharTokenizer:
    """A token for each character: where no library of tokenizers is installed."""

    eos_token_id = 0
    chat_template = "characters"

    def encode(self, text: str) -> list[int]:
        """The ids of a text; that of END is the stop token."""
        ids = [ord(one) + _FIRST for one in text.removesuffix(END)]
        return [*ids, self.eos_token_id] if text.endswith(END) else ids

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """The text of ids."""
        return "".join(chr(one - _FIRST) for one in token_ids if one >= _FIRST)

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> list[int]:
        """The ids of a conversation."""
        ids = self.encode(json.dumps(options.get("tools") or []))
        for message in conversation:
            ids.append(_ROLES[message["role"]])
            ids += self.encode(message.get("content") or "")
            for call in message.get("tool_calls") or ():
                ids += self.encode(f"<tool_call>{json.dumps(call['function'])}</tool_call>")
            ids.append(self.eos_token_id)
        if options.get("add_generation_prompt"):
            ids.append(_ROLES["assistant"])
        return ids


def tokenizer() -> Any:
    """One of transformers with Qwen3's template where TRL is installed, else CharTokenizer."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        from trl.chat_template_utils import qwen3_chat_template
    except ImportError:
        return CharTokenizer()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ("<pad>", "<|im_start|>", END)
    raw = Tokenizer(models.BPE({one: at for at, one in enumerate([*special, *letters])}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        eos_token=END,
        additional_special_tokens=["<|im_start|>"],
        chat_template=qwen3_chat_template,
    )


@dataclass(slots=True)
class Engine:
    """Samples the call for the first prompt of a rollout, and the answer for the second, after up
    to `late_s` seconds.
    """

    tokens: Any
    late_s: float = 0.0
    first: int = 0  # the length of the first prompt, which is the same for all
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    call_ids: list[int] = field(init=False)
    answer_ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.call_ids = list(self.tokens.encode(CALL + END))
        self.answer_ids = list(self.tokens.encode(ANSWER + END))

    def sampled(self, prompt: Sequence[int]) -> list[int]:
        """The ids for a prompt."""
        self.first = self.first or len(prompt)
        return self.call_ids if len(prompt) <= self.first else self.answer_ids

    async def sample(self, prompt: Sequence[int]) -> list[int]:
        """As `sampled`, later."""
        await asyncio.sleep(self.chance.random() * self.late_s)
        return self.sampled(prompt)


def parsed(text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """The text and the tool calls of an answer."""
    found = TOOL_PARSERS["hermes"](text)
    return found.text, [(call.name, json.loads(call.arguments)) for call in found.calls]
