"""Responses to Anthropic's Messages and back: pure functions on parsed JSON.

request.py   the body of `POST /v1/messages`, of Responses parameters
answer.py    the Responses document, of a message
stream.py    a message, of the events of a stream
"""

from gymmesh_model.messages_api.answer import from_message
from gymmesh_model.messages_api.request import MessagesOptions, to_messages
from gymmesh_model.messages_api.stream import MessageFold

__all__ = ["MessageFold", "MessagesOptions", "from_message", "to_messages"]
