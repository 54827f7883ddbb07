"""Answers as endpoints give them, read and checked. Pure.

chat_stream.py  a streamed answer of Chat Completions
objects.py      a body or an event as a JSON object
responses.py    one of the Responses API, streamed or whole
"""

from gymmesh_model.backends.answers.chat_stream import ChatFold
from gymmesh_model.backends.answers.objects import read_object
from gymmesh_model.backends.answers.responses import ResponsesReader, read_response

__all__ = [
    "ChatFold",
    "ResponsesReader",
    "read_object",
    "read_response",
]
