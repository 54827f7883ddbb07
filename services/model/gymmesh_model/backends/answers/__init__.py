"""Answers as endpoints give them, read and checked. Pure.

chat_stream.py  a streamed answer of Chat Completions
responses.py    one of the Responses API, streamed or whole
"""

from gymmesh_model.backends.answers.chat_stream import ChatFold
from gymmesh_model.backends.answers.responses import ResponsesReader, read_response

__all__ = [
    "ChatFold",
    "ResponsesReader",
    "read_response",
]
