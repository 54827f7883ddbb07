"""A function or graph as the agent, in the agent's own process: only for trusted code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from gymmesh.sandbox.v1 import process_pb2
from gymmesh_agent.programs.ends import ProgramEnd
from gymmesh_agent.programs.options import ProgramOptions
from gymmesh_agent.programs.sandboxed import ProgramGateway, ProgramTask
from gymmesh_runtime.config import named_module


async def run_in_process(
    options: ProgramOptions, task: ProgramTask, gateway: ProgramGateway, answers: Callable[[], int]
) -> ProgramEnd:
    """Runs the function to its end. Plain functions run in a thread, which nothing can stop.

    Raises what the function raises, unless the rollout was already over.
    """
    given = {"prompt": task.prompt, "url": task.url, "key": gateway.key, "model": options.model,
             "workdir": options.workdir}  # fmt: skip
    cause = process_pb2.EXIT_CAUSE_EXITED
    work = asyncio.ensure_future(_called(find_function(options.function), given))
    stop = asyncio.ensure_future(gateway.stopped.wait())
    try:
        await asyncio.wait((work, stop), timeout=options.timeout_s, return_when="FIRST_COMPLETED")
        if not work.done() and not stop.done():
            cause = process_pb2.EXIT_CAUSE_TIMED_OUT
        elif work.done() and not gateway.stopped.is_set():
            work.result()
    finally:
        work.cancel()
        stop.cancel()
        await asyncio.wait((work, stop))
    return ProgramEnd(
        cause=cause,
        exit_code=0 if cause == process_pb2.EXIT_CAUSE_EXITED else None,
        answers=answers(),
    )


def find_function(target: str) -> Any:
    """The function or graph that `package.module:name` or `folder/file.py:name` names. Raises
    ValueError.
    """
    place, _, name = target.rpartition(":")
    try:
        return vars(named_module(place))[name]
    except KeyError:
        raise ValueError(f"function: {target!r}: {place} has no {name!r}") from None
    except (ImportError, OSError, SyntaxError) as error:
        raise ValueError(f"function: {target!r} cannot be imported: {error}") from None


async def _called(target: Any, given: dict[str, str]) -> Any:
    if not callable(target):
        return await target.ainvoke({"messages": [{"role": "user", "content": given["prompt"]}]})
    parameters = inspect.signature(target).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    wanted = {key: value for key, value in given.items() if takes_all or key in parameters}
    if inspect.iscoroutinefunction(target):
        return await target(**wanted)
    return await asyncio.to_thread(target, **wanted)
