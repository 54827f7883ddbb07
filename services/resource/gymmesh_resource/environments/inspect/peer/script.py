"""The calls of the service, see `peer_processes`.

load      loads the task of a file or a package, and returns its description
samples   returns a page of the task's samples as rows
open      adds a session's sample. If our agent plays, it runs up to the solver's first model call,
          and returns that call's tools
call      calls one of those tools
play      has the solver play the whole sample with a model endpoint
verify    runs the scorers
close     ends the sample at any point

It asks for `judge`, a model's answer, and for `exec`, `read` and `write` in sandboxes.
"""

# ruff: noqa: E402  # the imports need what is done before them

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import sys
import types
from typing import Any

os.environ["INSPECT_DISPLAY"] = "none"
_PACKAGE = "gymmesh_resource.environments.inspect.peer"
if importlib.util.find_spec("gymmesh_resource") is None:
    # Another interpreter: the modules beside this file, and nothing of the packages above them.
    for _end in (n for n, one in enumerate(_PACKAGE + ".") if one == "."):
        sys.modules[_PACKAGE[:_end]] = _made = types.ModuleType(_PACKAGE[:_end])
        _made.__path__ = []
    _made.__path__ = [os.path.dirname(os.path.abspath(__file__))]
for _needed in ("inspect_ai", "openai"):
    if importlib.util.find_spec(_needed) is None:
        raise ModuleNotFoundError(f"No module named {_needed!r}", name=_needed)

from gymmesh_resource.environments.inspect.peer.evaluation import TaskEvaluation, load_task
from gymmesh_resource.environments.inspect.peer.listing import row_of
from gymmesh_resource.environments.inspect.peer.models import endpoint_api
from gymmesh_resource.environments.inspect.peer.scores import scores_of
from gymmesh_resource.environments.inspect.peer.session import SampleSession

_loaded: list[TaskEvaluation] = []
_tasks: set[asyncio.Task[None]] = set()


async def load(_host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Load the task, once in a process, and start its evaluation."""
    evaluation = load_task(params)
    _loaded.append(evaluation)
    _tasks.add(asyncio.get_running_loop().create_task(evaluation.run()))
    return evaluation.about


async def samples(_host: Any, params: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of `count` samples from `start` on."""
    found = _loaded[0].samples.values()
    page = itertools.islice(found, params["start"], params["start"] + params["count"])
    return await asyncio.gather(*(row_of(sample, _loaded[0]) for sample in page))


async def open_session(host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """The `tools` that our agent may call, and those `left_out`; none where the solver plays."""
    evaluation = _loaded[0]
    sample = evaluation.samples[params["sample"]]
    names = params["sandboxes"]
    session = SampleSession(host, params["session"], sample, names, judge=evaluation.judge)
    evaluation.sessions[session.id] = session
    if not evaluation.ours:
        return {"tools": [], "left_out": []}
    await session.show(params["input"])
    await evaluation.add(session)
    return dict(await _finished(session, session.opened))


async def call(_host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """What a tool answered: `output` as parts of the Responses API, or `error`; `done`."""
    session = _loaded[0].sessions[params["session"]]
    answered = session.call_tool(params["name"], params["arguments"])
    return dict(await _finished(session, answered))


async def play(_host: Any, params: dict[str, Any]) -> None:
    """Play with an endpoint, to the solver's end or to a limit of the task."""
    session = _loaded[0].sessions[params["session"]]
    session.api = endpoint_api(params["base_url"], params["key"], params["model"])
    await _loaded[0].add(session)
    try:
        await session.played
    except asyncio.CancelledError:
        session.stop()
        raise


async def verify(_host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """What the scorers answered; see `scores_of`."""
    session = _loaded[0].sessions[params["session"]]
    if session.api is None and not _loaded[0].ours:
        raise LookupError(
            "no agent played the sample. With the option `solver: own`, the agent must be a "
            "program with the option `program: environment`"
        )
    await session.judge(params["items"], params["stop"])
    return scores_of(await _finished(session, session.ended))


async def close(_host: Any, params: dict[str, Any]) -> None:
    """End the session's sample."""
    session = _loaded[0].sessions.pop(params["session"], None)
    if session is not None:
        session.cancel()


async def _finished(session: SampleSession, work: Any) -> Any:
    """What is awaited; the sample ends where the service gives it up."""
    try:
        return await work
    except asyncio.CancelledError:
        session.cancel()
        raise


METHODS = {
    "load": load,
    "samples": samples,
    "open": open_session,
    "call": call,
    "play": play,
    "verify": verify,
    "close": close,
}
