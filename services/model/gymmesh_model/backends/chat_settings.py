"""What the chat backends make of a call's settings, once for all calls that share them."""

from __future__ import annotations

from typing import Any

from gymmesh_model.backends.base import ModelCall
from gymmesh_model.convert import ChatOptions, echo_of, settings_to_chat, to_chat

Json = dict[str, Any]


class ChatSettings:
    """body: the chat request but its messages. echo: see `echo_of`. Neither is to be changed."""

    __slots__ = ("body", "echo")

    def __init__(self, params: Json, options: ChatOptions) -> None:
        self.body = settings_to_chat(params, options)
        self.echo = echo_of(params)


def chat_settings(call: ModelCall, options: ChatOptions) -> ChatSettings | None:
    """Those of a call; None where it shares none. Raises MeshError as `to_chat`."""
    settings = call.settings
    if settings is None:
        return None
    made: ChatSettings | None = settings.made
    if made is None:
        made = settings.made = ChatSettings(settings.params, options)
    return made


def chat_echo(call: ModelCall, options: ChatOptions) -> bytes | None:
    """What the response repeats of the settings, where it is known already."""
    made = chat_settings(call, options)
    return None if made is None else made.echo


def chat_body(call: ModelCall, options: ChatOptions) -> Json:
    """The chat request of a call, a dict of its own. Raises MeshError as `to_chat`."""
    made = chat_settings(call, options)
    shared = None if made is None else made.body
    return to_chat(call.params, options, seed=call.seed, items=call.items, shared=shared)
