"""Responses to Chat Completions and back: pure functions on parsed JSON.

`to_chat(params)` returns the body of `POST /chat/completions`; `from_chat(answer, params)` returns
the Responses document. Neither function changes its arguments. A parameter or item that Chat
Completions can't represent is refused by name. The module `to_chat` lists the parameters that have
no effect in Chat Completions, and why.
"""

from gymmesh_model.convert.arrange import has_several_calls, one_call_each
from gymmesh_model.convert.content import content_pieces
from gymmesh_model.convert.document import count_of, cut_short, document, status_for
from gymmesh_model.convert.endpoint_text import (
    is_object,
    sent_arguments,
    sent_name,
    whole,
    with_sent_calls,
    write_whole,
)
from gymmesh_model.convert.from_chat import as_written, from_chat, items_from_message
from gymmesh_model.convert.messages import ChatOptions, messages_from_input, messages_from_items
from gymmesh_model.convert.parameters import LACKING, OFF, asked, function_tools
from gymmesh_model.convert.parts import text_of_part
from gymmesh_model.convert.thinking import CLOSE, ThinkSplitter, lift_thinking, lower_thinking
from gymmesh_model.convert.to_chat import settings_to_chat, to_chat

__all__ = [
    "CLOSE",
    "LACKING",
    "OFF",
    "ChatOptions",
    "ThinkSplitter",
    "as_written",
    "asked",
    "content_pieces",
    "count_of",
    "cut_short",
    "document",
    "from_chat",
    "function_tools",
    "has_several_calls",
    "is_object",
    "items_from_message",
    "lift_thinking",
    "lower_thinking",
    "messages_from_input",
    "messages_from_items",
    "one_call_each",
    "sent_arguments",
    "sent_name",
    "settings_to_chat",
    "status_for",
    "text_of_part",
    "to_chat",
    "whole",
    "with_sent_calls",
    "write_whole",
]
