"""The service's side of the spawner, the process that starts everything in sandboxes: see
`spawner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymmesh_sandbox_local import spawner

_INLINE_BYTES = 32 << 10
_MESSAGE_BYTES = 64 << 10
_DESCRIPTORS = 250
_READY_S = 20.0
_CLOSE_S = 10.0


class SpawnError(OSError):
    """The spawner could not carry out a request, or is gone."""


class SpawnerGone(SpawnError):
    """The spawner has ended, together with everything that it started."""

    def __init__(self) -> None:
        super().__init__("the process that starts sandboxes (the spawner) has ended")


class Child:
    """A child of the spawner.

    Attributes:
        pid: its process id on this machine; it is valid while `pidfd` is open.
        pidfd: closed by `close`.
        status: as from `os.waitpid`, when the child has ended; the future is cancelled if the
            spawner is gone.
    """

    def __init__(self, pid: int, pidfd: int, status: asyncio.Future[int]) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.status = status

    @property
    def ended(self) -> bool:
        """Whether it has ended, or nothing more will be known of it."""
        return self.status.done()

    def signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Forgets it; may be called twice."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class Starter:
    """Starts sandboxes and the processes in them, through its own spawner.

    If the spawner ends without `close`, everything that it started ends, too, and `open` starts
    another spawner.

    plain: whether it starts processes of this machine, and needs no right to create namespaces.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._arguments = [spawner.PLAIN] if plain else []
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._tokens = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._children: dict[int, asyncio.Future[int]] = {}
        self._sending = asyncio.Lock()
        self._ready = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether requests can be sent."""
        return self._socket is not None

    @property
    def pid(self) -> int:
        """The spawner's process id; 0: it does not run."""
        return self._process.pid if self._process is not None else 0

    async def open(self) -> None:
        """Starts a spawner; an earlier one is closed. Raises SpawnError, with its output."""
        await self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await asyncio.to_thread(_spawner_process, theirs, self._arguments)
        ours.setblocking(False)
        self._socket = ours
        self._ready.clear()
        asyncio.get_running_loop().add_reader(ours, self._receive)
        try:
            async with asyncio.timeout(_READY_S):
                await self._ready.wait()
        except TimeoutError:
            await self.close()
            raise SpawnError(
                "the process that starts sandboxes (the spawner) does not answer"
            ) from None
        if self._socket is None:
            process, self._process = self._process, None
            _, wrote = await asyncio.to_thread(process.communicate)
            lines = wrote.decode("utf-8", "replace").strip().splitlines()
            raise SpawnError(
                lines[-1] if lines else "the process that starts sandboxes (the spawner) ended"
            )

    async def close(self) -> None:
        """Ends the spawner and everything that it started; may be called twice."""
        self._disconnect()
        process, self._process = self._process, None
        if process is not None:
            try:
                await asyncio.to_thread(process.wait, _CLOSE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                await asyncio.to_thread(process.wait)
            if process.stderr is not None:
                process.stderr.close()

    async def start(self, op: str, descriptors: Sequence[int], **fields: Any) -> Child:
        """Sends the request that starts a child. The descriptors are copied, so the caller still
        owns them.
        """
        token = next(self._tokens)
        status = asyncio.get_running_loop().create_future()
        self._children[token] = status
        try:
            answer, received = await self._request(token, op, descriptors, fields)
        except BaseException:
            self._children.pop(token, None)  # none is left where the spawner is gone
            raise
        return Child(answer["pid"], received[0], status)

    async def enter(self, box: int, launcher: int) -> tuple[list[int], int]:
        """The first process of a ready sandbox: descriptors of the process and of its root, and
        its id.
        """
        token = next(self._tokens)
        answer, received = await self._request(token, "enter", (), {"box": box, "parent": launcher})
        return received, answer["pid"]

    async def ask(self, op: str, **fields: Any) -> list[int]:
        """Sends a request that starts nothing; returns the descriptors of the answer."""
        _, received = await self._request(next(self._tokens), op, (), fields)
        return received

    async def _request(
        self, token: int, op: str, descriptors: Sequence[int], fields: dict[str, Any]
    ) -> tuple[dict[str, Any], list[int]]:
        message = marshal.dumps({"op": op, "token": token, **fields})
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[dict[str, Any], list[int]]] = loop.create_future()
        self._answers[token] = answer
        try:
            async with self._sending:
                await self._send(message, descriptors)
            return await answer
        finally:
            if answer.done() or not self.running:
                self._answers.pop(token, None)

    async def _send(self, message: bytes, descriptors: Sequence[int]) -> None:
        with contextlib.ExitStack() as stack:
            if len(message) > _INLINE_BYTES:
                file = os.memfd_create("request", os.MFD_CLOEXEC)
                stack.callback(os.close, file)
                os.write(file, message)
                message, descriptors = marshal.dumps({"in_file": True}), (file, *descriptors)
            while True:
                if self._socket is None:
                    raise SpawnerGone
                try:
                    socket.send_fds(self._socket, [message], descriptors)
                    return
                except BlockingIOError:
                    await self._until_writable(self._socket)
                except OSError as error:
                    raise SpawnerGone from error

    async def _until_writable(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(connection, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(connection)

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                message, received, _, _ = socket.recv_fds(
                    self._socket, _MESSAGE_BYTES, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                message, received = b"", []
            if not message:
                self._disconnect()
                self._ready.set()
                return
            self._received(marshal.loads(message), received)

    def _received(self, message: dict[str, Any], received: list[int]) -> None:
        if "ready" in message:
            self._ready.set()
        elif "status" in message:
            future = self._children.pop(message["token"], None)
            if future is not None and not future.done():
                future.set_result(message["status"])
        else:
            answer = self._answers.pop(message["token"], None)
            if answer is None or answer.done():
                self._discard(message, received)
            elif "error" in message:
                answer.set_exception(SpawnError(message["error"]))
            else:
                answer.set_result((message, received))

    def _discard(self, message: dict[str, Any], received: list[int]) -> None:
        """Ends what was started for a caller that no longer waits."""
        if "pid" in message and received:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(received[0], signal.SIGKILL)
        for descriptor in received:
            os.close(descriptor)

    def _disconnect(self) -> None:
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        lost = SpawnerGone()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)
        self._answers.clear()
        for future in self._children.values():
            future.cancel()
        self._children.clear()


def _spawner_process(
    connection: socket.socket, arguments: Sequence[str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(spawner.__file__)), *arguments],
        stdin=connection.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={},
        start_new_session=True,
    )
