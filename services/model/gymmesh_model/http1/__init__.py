"""A lean HTTP/1.1 client on asyncio: keep-alive connections, whole or streamed answers.

It does what calling a model's endpoint takes and no more: requests with their whole body at
hand, answers with a bounded size, no redirects, no cookies, no proxies, no decompression (it
asks for `identity`). Formats: RFC 9110 and RFC 9112.
"""

from gymmesh_model.http1.answer import Answer
from gymmesh_model.http1.client import Body, Client
from gymmesh_model.http1.connection import Streamed
from gymmesh_model.http1.errors import (
    AnswerRepeated,
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    Http1Error,
    ProtocolViolated,
    TooLarge,
)
from gymmesh_model.http1.head import Head, Headers
from gymmesh_model.http1.target import Target

__all__ = [
    "Answer",
    "AnswerRepeated",
    "Body",
    "Client",
    "ConnectFailed",
    "ConnectTimedOut",
    "ConnectionLost",
    "Head",
    "Headers",
    "Http1Error",
    "ProtocolViolated",
    "Streamed",
    "Target",
    "TooLarge",
]
