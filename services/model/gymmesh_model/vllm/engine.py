"""Loads vLLM's engine in this process, and its ASGI application, which offers vLLM's whole API.

vLLM is imported here and nowhere else, when an engine is loaded. Its processes (the engine's core
and its workers) are started by `spawn`: forking a process that has threads and gRPC would hang.
Facts about vLLM: its module `vllm.entrypoints.launchers`, 0.32.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import multiprocessing
import os
import threading
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from gymmesh_model.vllm.command import model_arguments
from gymmesh_model.vllm.config import EngineConfig
from gymmesh_model.vllm.reaper import Reaper
from gymmesh_runtime.extras import Extra

_EXTRA: Final = Extra("vllm", ("vllm",))
_STOP_SECONDS: Final = 5.0
# Its own answers go to standard output by default, which may be somebody's data.
_ENVIRONMENT: Final = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
}

Spans = list[tuple[str, int]]
"""Versions of the weights, each with its first output token."""

spans_of_call: contextvars.ContextVar[Spans | None] = contextvars.ContextVar(
    "spans_of_call", default=None
)
"""The list that receives the versions that sampled, for calls in a context that sets this variable.
"""


class EngineError(Exception):
    """The engine is not available. The message is one sentence."""


class InProcessVllm:
    """One engine, from its start to its end. model: the model's name in requests."""

    def __init__(self, config: EngineConfig, model: str) -> None:
        self._config = config
        self._model = model
        self._engine: Any = None
        self._reaper = Reaper()
        # Loading runs in a thread, which can't be cancelled.
        self._lock = threading.Lock()
        self._loading = False
        self._stopped = False

    async def start(self) -> Any:
        """Loads the model and returns the ASGI application that answers its requests. Call this
        once.

        Raises EngineError if vLLM is missing, refuses its arguments, fails or is not ready in time.
        No process is left running then. If the loading can't be interrupted, it runs to its end,
        and the loaded engine is then ended at once.
        """
        if problem := _EXTRA.problem("'engine'"):
            raise EngineError(
                f"{problem}, or set 'serve' instead of 'engine', so that vLLM runs as a separate "
                "process"
            )
        before = set(multiprocessing.active_children())
        self._reaper.start()
        self._loading = True
        loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            async with asyncio.timeout(self._config.ready_s):
                args, engine = await asyncio.shield(loading)
                started = set(multiprocessing.active_children()) - before
                self._reaper.watch(child.pid for child in started if child.pid)
                return await _application(args, engine)
        except BaseException as error:
            await self._give_up(loading, before)
            if isinstance(error, EngineError) or not isinstance(error, Exception):
                raise
            what = f"could not be loaded: {type(error).__name__}: {error}"
            if isinstance(error, TimeoutError):
                what = f"was not ready within {self._config.ready_s:g} s (engine.ready_s)"
            raise EngineError(f"the engine {what}") from None

    async def stop(self) -> None:
        """Ends the engine's processes. Can be called at any time, also twice."""
        with self._lock:
            self._stopped = True
            if self._loading:
                return  # _load ends what it has loaded
        engine, self._engine = self._engine, None
        if engine is not None:
            children = set(multiprocessing.active_children())
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await asyncio.to_thread(engine.shutdown, _STOP_SECONDS / 2)
            except TimeoutError:
                _kill(children)
        await asyncio.to_thread(self._reaper.stop)

    @property
    def failure(self) -> str | None:
        """Why the engine no longer answers; None unless the engine has died."""
        if self._engine is not None and self._engine.errored:
            return "vLLM's engine in this process has died; the engine's log says why"
        return None

    async def version(self) -> object:
        """The engine's name of its weights; None if the engine can't report it."""
        if self._engine is None:
            return None
        try:
            return await self._engine.get_weight_version()
        except Exception:  # of a dying engine: vLLM's own kinds
            return None

    async def announce(self, version: int) -> None:
        """Sets the weights version that the engine reports from now on. Raises EngineError."""
        if self._engine is None:
            raise EngineError("the engine is not running")
        try:
            await self._engine.update_weight_version(str(version))
        except Exception as error:  # of a dying engine: vLLM's own kinds
            said = f"{type(error).__name__}: {error}"
            raise EngineError(f"the engine did not accept the weights' version: {said}") from None

    def _load(self) -> tuple[Any, Any]:
        """Loads the engine, in a thread. Ends the engine if nobody waits for it any more."""
        engine = None
        try:
            with self._reaper.marking():
                args, engine = _load(self._config, self._model)
            return args, engine
        finally:
            with self._lock:
                self._loading = False
                stopped = self._stopped
                self._engine = None if stopped else engine
            if stopped:
                if engine is not None:
                    engine.shutdown(_STOP_SECONDS / 2)
                self._reaper.stop()

    async def _give_up(self, loading: asyncio.Future[Any], before: set[Any]) -> None:
        """Ends a loading that can't be cancelled: without its processes, the loading fails."""
        if not loading.done():
            _kill(set(multiprocessing.active_children()) - before)
            await asyncio.wait([loading], timeout=_STOP_SECONDS)
        await self.stop()
        if not loading.done():
            loading.add_done_callback(_retrieve)


def _load(config: EngineConfig, model: str) -> tuple[Any, Any]:
    """Creates vLLM's arguments and engine. Blocks for a minute or more."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.async_llm import AsyncLLM

    class Parser(FlexibleArgumentParser):  # type: ignore[misc] # vLLM is not there to be checked
        def error(self, message: str) -> NoReturn:
            raise EngineError(f"vLLM refuses 'engine.args': {message}")

    args = make_arg_parser(Parser()).parse_args(["--model", *model_arguments(config, model)])
    try:
        validate_parsed_serve_args(args)
    except (TypeError, ValueError) as error:
        raise EngineError(f"vLLM refuses 'engine.args': {error}") from None
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(args))
    engine.generate = _noting_spans(engine.generate)
    return args, engine


async def _application(args: Any, engine: Any) -> Any:
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app

    tasks = await engine.get_supported_tasks()
    application = build_app(args, tasks, engine.model_config)
    await init_app_state(engine, application.state, args, tasks)
    # When its engine dies the application sets `should_exit` on its server; nothing to end here.
    application.state.server = SimpleNamespace(should_exit=False)
    return application


def _noting_spans(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Records which weights sampled which token, since vLLM's chat answers don't have this."""

    async def noting(*given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        spans = spans_of_call.get()
        async with contextlib.aclosing(generate(*given, **named)) as outputs:
            async for output in outputs:
                found = output.outputs[0].weight_versions if output.outputs else None
                if spans is not None and found:
                    spans[:] = [(span.version, span.start) for span in found]
                yield output

    return noting


def _kill(children: set[Any]) -> None:
    for child in children:
        child.kill()


def _retrieve(loading: asyncio.Future[Any]) -> None:
    """Retrieves the result of an abandoned loading, which asyncio would otherwise log."""
    if not loading.cancelled():
        loading.exception()
