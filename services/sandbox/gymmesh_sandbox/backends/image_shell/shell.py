"""A shell in a sandbox that runs short scripts, one at a time."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from gymmesh_sandbox.backends.image_shell.programs import Programs, ScriptFailed, ShellConnection
from gymmesh_sandbox.errors import sandbox_lost

# A daemon on a busy machine takes half a minute to start a shell in a container.
_SCRIPT_S: Final = 60.0


class HelperShell:
    """A shell that keeps running, so that signals and short scripts need no new process.

    It starts with its sandbox, because later the sandbox may be unable to start a process.
    """

    def __init__(self, programs: Programs, sandbox_id: str) -> None:
        self._programs = programs
        self._sandbox_id = sandbox_id
        self._connection: ShellConnection | None = None
        self._lock = asyncio.Lock()

    async def run(self, script: bytes) -> bytes:
        """Runs a script and returns its standard output.

        Raises ScriptFailed, and SANDBOX_LOST if no shell answers.
        """
        async with self._lock:
            fresh = self._connection is None
            try:
                return await self._run(script)
            except OSError:  # a TimeoutError is one
                await self.close()
                if fresh:
                    raise sandbox_lost(
                        self._sandbox_id, "the sandbox's shell does not answer"
                    ) from None
            # It was ended from inside; another one may still be had.
            try:
                return await self._run(script)
            except OSError:
                await self.close()
                raise sandbox_lost(
                    self._sandbox_id, "the sandbox's shell does not answer"
                ) from None

    async def close(self) -> None:
        """Ends the shell; the next `run` starts a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _run(self, script: bytes) -> bytes:
        word = secrets.token_hex(16).encode()
        async with asyncio.timeout(_SCRIPT_S):
            if self._connection is None:
                self._connection = await self._programs.open_shell()
            # What a script before this one still writes, whose caller went away, is skipped.
            begin, end = word + b"(", word + b")"
            text = b"echo '%s'; { :\n%s\n} </dev/null 2>/dev/null\necho \"%s$?\"\n"
            await self._connection.send(text % (begin, script, end))
            said = b""
            while end not in said or not said.endswith(b"\n"):
                piece = await self._connection.read()
                if piece is None:
                    raise ConnectionError
                said += piece
        output, _, code = said.partition(begin + b"\n")[2].rpartition(end)
        if int(code):
            raise ScriptFailed(int(code), output)
        return output
