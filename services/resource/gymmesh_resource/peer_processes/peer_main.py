"""The other side of `peer_process`: runs a script's methods, in any interpreter from Python 3.10.

Run as a file: `python -u peer_main.py SCRIPT MAX_LINE_BYTES`. It imports the standard library and
the script, which defines

    METHODS = {"play": play}     # async def play(host: PeerHost, params: dict) -> JSON

A method `close`, where there is one, is called without parameters before the process ends.

One line of JSON is one message, on the standard input and output that the process was started
with; the script and its framework have neither: what they print goes to the error output.

from the service  {"call": 1, "method": "play", "params": {…}}    {"cancel": 1}
                  {"answer": 1, "result": …}   {"answer": 1, "error": {"kind", "message"}}
to the service    {"ready": true}   {"failed": {"kind", "message"}}: the script's import raised
                  {"reply": 1, "result": …}    {"reply": 1, "error": {"kind", "message"}}
                  {"ask": 1, "method": "exec", "params": {…}}     {"withdraw": 1}

Each call runs as a task. A call that is cancelled replies with an error as any other. It ends when
its input ends.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import sys
import traceback
from functools import partial
from typing import Any

_MESSAGE_CHARACTERS = 4_000


class AskFailed(Exception):
    """The service could not do what the script asked for. `kind`: the type of its exception."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class PeerHost:
    """The service, as a script's methods see it."""

    def __init__(self, replies: int, limit: int) -> None:
        self._replies = replies
        self._limit = limit
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """What the service answers. Raises `AskFailed`."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self.send({"ask": number, "method": method, "params": params})
        try:
            return await future
        finally:
            if self._asked.pop(number, None) is not None:
                self.send({"withdraw": number})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises ValueError and TypeError for what JSON can't hold, or what is
        too long.
        """
        data = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(data) > self._limit:
            raise ValueError(f"the answer has more than {self._limit} bytes")
        while data:
            data = data[os.write(self._replies, data) :]

    def receive(self, message: dict[str, Any], methods: dict[str, Any]) -> None:
        """Handle one message of the service's."""
        if "call" in message:
            number = message["call"]
            method = methods.get(message["method"])
            call = self._perform(number, method, message["method"], message["params"])
            task = self._calls[number] = asyncio.get_running_loop().create_task(call)
            task.add_done_callback(partial(self._ended, number))
        elif "cancel" in message:
            if task := self._calls.get(message["cancel"]):
                task.cancel()
        elif future := self._asked.pop(message["answer"], None):
            if future.done():
                return
            if error := message.get("error"):
                future.set_exception(AskFailed(error["kind"], error["message"]))
            else:
                future.set_result(message.get("result"))

    async def _perform(self, number: int, method: Any, name: str, params: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"reply": number}
        try:
            if method is None:
                raise LookupError(f"the script has no method {name!r}")
            self.send({**reply, "result": await method(self, params)})
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                traceback.print_exc()
            self.send({**reply, "error": described(error)})
        finally:
            del self._calls[number]

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        """Reply for a call that was cancelled before its task took its first step."""
        if self._calls.pop(number, None) is not None:
            self.send({"reply": number, "error": described(asyncio.CancelledError())})

    async def cancel_all(self) -> None:
        """Cancel what still runs and give it a moment to clean up."""
        for task in (tasks := list(self._calls.values())):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)


def main() -> None:
    """Take over the streams, load the script and serve calls until the input ends."""
    script, limit = sys.argv[1], int(sys.argv[2])
    here = os.path.dirname(os.path.abspath(__file__))
    # The service's own modules must not shadow the framework's.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    host = PeerHost(replies, limit)
    try:
        methods = load(script)
    except BaseException as error:
        traceback.print_exc()
        host.send({"failed": described(error)})
        return
    asyncio.run(_serve(host, methods, requests, limit))


def load(script: str) -> dict[str, Any]:
    """The methods of a script."""
    spec = importlib.util.spec_from_file_location("gymmesh_peer_script", script)
    assert spec is not None, script
    assert spec.loader is not None, script
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return dict(module.METHODS)


def described(error: BaseException) -> dict[str, str]:
    """An exception as a message has it."""
    return {"kind": type(error).__name__, "message": str(error)[:_MESSAGE_CHARACTERS]}


async def _serve(host: PeerHost, methods: dict[str, Any], requests: int, limit: int) -> None:
    reader = asyncio.StreamReader(limit=limit)
    loop = asyncio.get_running_loop()
    with os.fdopen(requests, "rb") as pipe:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        host.send({"ready": True})
        while line := await reader.readline():
            host.receive(json.loads(line), methods)
        await host.cancel_all()
        if close := methods.get("close"):
            await close(host, {})


if __name__ == "__main__":
    main()
