"""What every hostile program has in its home as the module `hostile`.

A program that gets what it must not get prints a line that begins with BREACH; the tests look for
these. It needs Python's own library alone. The agent fills in names in braces such as that of the
key, so no variable is called like one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

GATEWAY = ("127.0.0.1", 8377)
KEY = os.environ.get("OPENAI_API_KEY", "")
CHAT = "/v1/chat/completions"
WAIT_S = 60.0


def breach(what: str) -> None:
    """Says that something was possible."""
    print("BREACH:", what[:300], flush=True)


def attempt(what: str, act: Callable[..., Any], *arguments: Any) -> None:
    """Does what has to fail."""
    try:
        act(*arguments)
    except Exception:
        return
    breach(what)


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    """The body of a Chat Completions request."""
    return {"model": "m", "messages": [{"role": "user", "content": one} for one in texts], **more}


def request(
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    token: str = KEY,
) -> tuple[int, bytes]:
    """The status and the answer of a request; 0 where the connection was closed without one."""
    sent = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
    shown = {
        "Content-Type": "application/json",
        **({"Authorization": f"Bearer {token}"} if token else {}),
    }
    connection = http.client.HTTPConnection(*GATEWAY, timeout=WAIT_S)
    try:
        connection.request(method, path, sent, {**shown, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def ask(text: str) -> str:
    """The model's answer to a text."""
    status, answer = request("POST", CHAT, chat(text))
    if status != 200:
        raise SystemExit(f"the model did not answer {text!r}: {status} {answer[:200]!r}")
    return str(json.loads(answer)["choices"][0]["message"]["content"])


def hold() -> None:
    """Returns once a rollout beside this one has ended, which begins when this is called."""
    ask("HOLD")


def raw(*pieces: bytes) -> socket.socket:
    """A connection to the gateway on which these bytes were sent."""
    made = socket.create_connection(GATEWAY, timeout=WAIT_S)
    with contextlib.suppress(OSError):
        for piece in pieces:
            made.sendall(piece)
    return made


def head(*lines: str, method: str = "POST", path: str = CHAT, token: str = KEY) -> bytes:
    """The head of a request, without its last line."""
    first = (f"{method} {path} HTTP/1.1", "Host: gateway", f"Authorization: Bearer {token}")
    return "".join(f"{line}\r\n" for line in (*first, *lines)).encode()


def status_of(connection: socket.socket) -> int:
    """The status of the answer on a connection; 0 where it was closed."""
    try:
        first = connection.recv(4096)
        return int(first.split(b" ", 2)[1]) if first.startswith(b"HTTP/1.") else 0
    except (OSError, ValueError, IndexError):
        return 0


def expect(what: str, status: int, allowed: Sequence[int]) -> None:
    """A status that has to be one of these."""
    if status not in allowed:
        breach(f"{what}: status {status}")
