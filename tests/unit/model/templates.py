"""Chat templates in Python, each with a habit of a model family, and a tokenizer for them.

Texts are tokenised as `tests.support.vllm_server` does: pairs of letters are one token, so that
an answer written letter by letter is tokenised otherwise than the tokenizer would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.support.vllm_server import decode, encode, render

Json = dict[str, Any]
Template = Callable[..., str]
END: Final = "<|im_end|>"
START: Final = "<|im_start|>"


def supports(name: Any) -> Template:
    """A template of the fake vLLM server."""

    def template(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
        return render(messages, None, name, generation=generation, leaves_open=leaves_open)

    return template


def no_thinking(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Puts an empty thought before an answer that is to be written, and before no other."""
    said = _plain(messages, leaves_open)
    return said + (f"{START}assistant\n<think></think>" if generation else "")


def headed(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Ends no message: the head of the next one is what a model stops with."""
    said = ""
    for place, message in enumerate(messages):
        again = place and message["role"] == messages[place - 1]["role"] == "tool"
        head = "" if again else _head(message["role"])
        said += head + _body(message, thought=False)
    return said + (_head("assistant") if generation else "")


def first_tool(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Leaves out calls, and marks the first tool result of a conversation."""
    said, used = "", False
    for message in messages:
        if message["role"] == "tool":
            said += ("" if used else "FIRST ") + f"{message['content']}{END}"
            used = True
        else:
            said += f"{START}{message['role']}\n{message.get('content') or ''}{END}"
    return said + (f"{START}assistant\n" if generation else "")


def single_calls(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Takes one call an answer, and spells it in its own way."""
    if any(len(message.get("tool_calls") or ()) > 1 for message in messages):
        raise ValueError("This model only supports single tool-calls at once!")
    return _plain(messages, leaves_open) + (f"{START}assistant\n" if generation else "")


def counting(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Numbers the messages, so that what is appended depends on what came before."""
    said = ""
    for place, message in enumerate(messages):
        said += f"{START}{place} {message['role']}\n{_body(message, thought=False)}{END}"
    return said + (f"{START}assistant\n" if generation else "")


def first_system(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Puts every system message at the beginning."""
    ordered = sorted(messages, key=lambda message: message["role"] != "system")
    return _plain(ordered, leaves_open) + (f"{START}assistant\n" if generation else "")


def switched(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Reads in the first system message whether the model is to think."""
    off = messages[0]["role"] == "system" and "/no_think" in messages[0]["content"]
    head = f"{START}assistant\n" + ("<think></think>" if off else "")
    return _plain(messages, leaves_open) + (head if generation else "")


def switched_by_users(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Reads in whatever a user said whether the model is to think."""
    off = any(one["role"] == "user" and "/no_think" in one["content"] for one in messages)
    head = f"{START}assistant\n" + ("<think></think>" if off else "")
    return _plain(messages, leaves_open) + (head if generation else "")


def counting_results(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Numbers the results of tools behind an answer that called one."""
    said = ""
    for place, message in enumerate(messages):
        called = place and messages[place - 1].get("tool_calls")
        number = f"{place} " if called else ""
        said += f"{START}{message['role']}\n{number}{_body(message, thought=False)}{END}\n"
    return said + (f"{START}assistant\n" if generation else "")


def joining(messages: Sequence[Json], *, generation: bool, leaves_open: bool) -> str:
    """Has no tokens of its own between messages: letters join over their ends."""
    said = "".join(f"{message['role'][0]}{_body(message, thought=False)}" for message in messages)
    return said + ("a" if generation else "")


KEEPING: Final[dict[str, Template]] = {
    "keeps": supports("keeps"),
    "drops": supports("drops"),
    "drops_old": supports("drops_old"),
    "late_end": supports("late_end"),
    "no_thinking": no_thinking,
    "headed": headed,
    "first_tool": first_tool,
    "single_calls": single_calls,
    "switched": switched,
}
"""Templates behind whose answers only what is new need be rendered."""


def _head(role: str) -> str:
    # As one token: the support's tokenizer has two special ones.
    return START if role == "tool" else f"{END}" if role == "user" else f"\x07{role[0]}"


def _plain(messages: Sequence[Json], leaves_open: bool) -> str:
    said = ""
    for place, message in enumerate(messages):
        end = "" if leaves_open and place == len(messages) - 1 else f"{END}\n"
        said += f"{START}{message['role']}\n{_body(message, thought=False)}{end}"
    return said


def _body(message: Json, *, thought: bool) -> str:
    calls = "".join(
        f"CALL {call['function']['name']} {json.dumps(call['function']['arguments'])}"
        for call in message.get("tool_calls") or ()
    )
    return (message.get("content") or "") + calls


class ToyTokenizer:
    """A tokenizer with one of the templates. renderings: how many messages each had."""

    eos_token_id = 2
    chat_template = "toy"

    def __init__(self, template: Template) -> None:
        self.template = template
        self.renderings: list[int] = []

    def apply_chat_template(self, conversation: list[Json], **options: Any) -> list[int]:
        self.renderings.append(len(conversation))
        return encode(
            self.template(
                [_with_text(message) for message in conversation],
                generation=options["add_generation_prompt"],
                leaves_open=options["continue_final_message"],
            )
        )

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        return decode(token_ids)


def _with_text(message: Json) -> Json:
    """The fake server reads arguments as text, templates as objects."""
    calls = [
        {**call, "function": {**call["function"], "arguments": _text(call)}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def _text(call: Json) -> str:
    arguments = call["function"]["arguments"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
