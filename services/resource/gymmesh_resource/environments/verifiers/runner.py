"""Lists, plays and scores the tasks of a verifiers taskset; runs in verifiers' own interpreter.

A script of `peer_processes`: it needs the standard library and verifiers, and nothing of this
project. Interface: verifiers 0.4, `verifiers.v1`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import itertools
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

vf: Any = importlib.import_module("verifiers.v1")
loaders: Any = importlib.import_module("verifiers.v1.utils.loaders")

# Of a result; what a task keeps beside its scores may be anything.
_INFO_CHARACTERS = 64 << 10
# Of a page of tasks; prompts may hold images.
_PAGE_CHARACTERS = 4 << 20
_numbers = itertools.count(1)


class Runner:
    """The environment of this process, its tasks, and the servers that its episodes share."""

    def __init__(self, env: Any, tasks: list[Any]) -> None:
        self.env = env
        self.tasks = tasks
        self._serving: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._starting = asyncio.Lock()

    async def serve(self) -> None:
        """Have the shared servers up: started by the first episode, for all of them."""
        async with self._starting:
            if self._serving is None or self._serving.done():
                self._ready.clear()
                self._serving = asyncio.create_task(self._serve())
            ready = asyncio.create_task(self._ready.wait())
            await asyncio.wait((ready, self._serving), return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if self._serving.done():
                self._serving.result()  # raises why
                raise RuntimeError("the shared servers of the taskset stopped unexpectedly")

    async def close(self) -> None:
        """End the shared servers."""
        self._stop.set()
        if self._serving is not None:
            await asyncio.wait((self._serving,))

    async def _serve(self) -> None:
        # Entered and left by one task, as some of what it holds asks for.
        async with self.env.serving():
            self._ready.set()
            await self._stop.wait()


_runner: Runner | None = None


def runner() -> Runner:
    """The runner that `load` made."""
    if _runner is None:
        raise RuntimeError("call load before other methods")
    return _runner


async def load(host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Load the taskset and its environment, and check that its tasks can be run.

    params: `taskset` (verifiers' own configuration of it, `id` may be a path), `env` (the rest of
    its `[env]` block), `limit` (of tasks; null: all), `unsandboxed`, `ours` (whether the policy's
    turns are played elsewhere).
    """
    global _runner
    taskset = dict(params["taskset"])
    taskset["id"] = _importable(taskset["id"])
    _share_connections()
    config = loaders.resolve_env_config({**params["env"], "taskset": taskset})
    env = loaders.load_environment(config)
    if params["ours"]:
        _check_scored_alone(env)
    elif not params["unsandboxed"]:
        _check_sandboxed(config)
    limit = params["limit"]
    if limit is None and not env.taskset.bounded:
        raise ValueError("the taskset is infinite. Set the option 'limit' to a number of tasks")
    _runner = Runner(env, list(itertools.islice(env.taskset, limit)))
    return {"tasks": len(_runner.tasks), "id": config.env_id}


async def tasks(host: Any, params: dict[str, Any]) -> list[dict[str, Any]]:
    """The next tasks: `key`, `name` and `messages` of each, from `start` on, at most `count`."""
    start, size = params["start"], 0
    page: list[dict[str, Any]] = []
    for task in runner().tasks[start : start + params["count"]]:
        page.append(_shown(task))
        size += len(str(page[-1]))
        if size > _PAGE_CHARACTERS:
            break
    return page


async def play(host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Play one episode of a task, against the model at an endpoint.

    params: `index` and `key` of the task, `base_url`, `api_key` and `model`.
    """
    task = _task(params)
    await runner().serve()
    # verifiers reads keys from variables, and hides those called so from what it starts.
    variable = f"GYMMESH_API_KEY_{next(_numbers)}"
    os.environ[variable] = params["api_key"]
    try:
        client = vf.EvalClientConfig(base_url=params["base_url"], api_key_var=variable)
        context = vf.ModelContext(model=params["model"], client=client)
        episode = await runner().env.run_episode(task, context)
    finally:
        os.environ.pop(variable, None)
    return _result(episode)


async def score(host: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Score a conversation that was held elsewhere. params: `index`, `key`, `messages`."""
    task = _task(params)
    trace = vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=_state_class(type(task))(),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        is_completed=True,
        stop_condition="agent_completed",
    )
    for message in params["messages"]:
        parent = len(trace.nodes) - 1 if trace.nodes else None
        sampled = message.pop("sampled")
        node = vf.MessageNode.model_validate(
            {"parent": parent, "message": message, "sampled": sampled}
        )
        trace.nodes.append(node)
    try:
        await task.score(trace)
        trace.ok = True
    except Exception as error:
        trace.record_error(error)
    return {"ok": trace.ok, "errors": [], "timeout": False, "traces": [_scores(trace)]}


async def close(host: Any, params: dict[str, Any]) -> None:
    """End the shared servers."""
    if _runner is not None:
        await _runner.close()


def _importable(taskset_id: str) -> str:
    """The id of a taskset; one that is a path becomes importable."""
    if os.sep not in taskset_id and not taskset_id.endswith(".py"):
        return taskset_id
    path = Path(taskset_id)
    if not path.exists():
        # The ids of Prime's hub have an owner.
        return taskset_id
    sys.path.insert(0, str(path.resolve().parent))
    return path.resolve().stem


def _share_connections() -> None:
    """One pool of connections for all episodes: each has a key, and so a client, of its own, and a
    pool costs some 25 ms and a megabyte that is kept until the servers end.
    """
    eval_client: Any = importlib.import_module("verifiers.v1.clients.eval")
    build = importlib.import_module("verifiers.v1.clients.base").build_async_httpx

    @functools.cache
    def shared(timeouts: str) -> Any:
        return build(vf.EvalClientConfig.model_validate({"timeout": json.loads(timeouts)}))

    eval_client.build_async_httpx = lambda config: shared(config.timeout.model_dump_json())


def _check_sandboxed(config: Any) -> None:
    """Raises ValueError for a seat whose program would run the model's commands on this machine."""
    for name, seat in config.agent_harnesses().items():
        runtime = getattr(config, name).runtime.type
        if runtime == "subprocess" and loaders.harness_class(seat.id).EXECUTES_CODE:
            raise ValueError(
                f"the harness {seat.id!r} of the agent {name!r} would run the model's commands "
                "on this machine, without a sandbox. Choose another runtime (docker, podman, "
                "prime), or set the option 'unsandboxed' to true"
            )


def _check_scored_alone(env: Any) -> None:
    """Raises ValueError for a taskset that can't score a conversation without its own runner."""
    task = env.taskset.task_type()
    config = env.taskset.config
    probe = next(iter(env.taskset), None)
    problem = ""
    if type(env) is not vf.SingleAgentEnv:
        problem = f"its environment {type(env).__name__} plays the episode itself"
    elif type(env.taskset).toolsets(config) or task.toolsets(config.task):
        problem = "it has toolsets"
    elif task.setup is not vf.Task.setup or task.finalize is not vf.Task.finalize:
        problem = f"{task.__name__} prepares or finishes a runtime"
    elif probe is not None:
        problem = _needs_runner(probe)
    if problem:
        raise ValueError(
            f"the option `solver: ours` can't judge this taskset, because {problem}. Use "
            "`solver: theirs`"
        )


def _needs_runner(task: Any) -> str:
    decorators: Any = importlib.import_module("verifiers.v1.utils.decorators")
    if task.hooks("stop") or decorators.discover_decorated(task, "intercept"):
        return "it stops or rewrites the conversation"
    scorers = [*task.hooks("metric"), *task.hooks("reward")]
    scorers += [judge.score for judge in task.plugged_judges()]
    for scorer in scorers:
        runtime = inspect.signature(scorer).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            return f"{scorer.__name__} reads the runtime"
    return ""


def _task(params: dict[str, Any]) -> Any:
    """The task of a row. Raises LookupError where the taskset has another in its place."""
    index, tasks = params["index"], runner().tasks
    if index >= len(tasks):
        raise LookupError(
            f"is {index}, but must be below the number of tasks in the taskset, {len(tasks)}"
        )
    if (key := params.get("key")) and tasks[index].key != key:
        raise LookupError(
            f"is {index}, but the task at this index of the taskset is not the task of this row"
        )
    return tasks[index]


def _shown(task: Any) -> dict[str, Any]:
    data = task.data
    messages = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        messages.append({"role": "user", "content": data.prompt})
    else:
        messages += [message.model_dump(exclude_none=True) for message in data.prompt or ()]
    return {"key": task.key, "name": data.name or data.id or "", "messages": messages}


def _result(episode: Any) -> dict[str, Any]:
    return {
        "ok": episode.ok,
        "timeout": episode.is_timeout,
        "errors": [_error(error) for error in episode.errors],
        "traces": [_scores(trace) for trace in episode.traces],
    }


def _scores(trace: Any) -> dict[str, Any]:
    record = {
        "id": trace.id,
        "agent": trace.agent.name,
        "trainable": trace.agent.trainable,
        "ok": trace.ok,
        "reward": _number(trace.reward),
        "rewards": {
            name: None
            if reward is None
            else {"score": _number(reward.score), "weight": _number(reward.weight)}
            for name, reward in trace.rewards.items()
        },
        "metrics": {name: _number(value) for name, value in trace.metrics.items()},
        "stop_condition": trace.stop_condition,
        "timeout": trace.is_timeout,
        "scoring": bool(trace.timing.scoring.start),
        "turns": trace.num_turns,
        "errors": [_error(error) for error in trace.errors],
    }
    with contextlib.suppress(Exception):  # what a task keeps there may be no JSON
        info = trace.model_dump(mode="json", include={"info"})["info"]
        if info and len(str(info)) <= _INFO_CHARACTERS:
            record["info"] = info
    return record


def _number(value: Any) -> Any:
    """A number as JSON has it; one that is not finite as text."""
    return value if value is None or math.isfinite(value) else repr(value)


def _error(error: Any) -> dict[str, Any]:
    return {"type": error.type, "message": error.message[:2000]}


def _state_class(task: type) -> Any:
    return importlib.import_module("verifiers.v1.state").state_cls(task)


METHODS = {"load": load, "tasks": tasks, "play": play, "score": score, "close": close}
