"""Tasks by split and index over HTTP, as OpenEnv and ORS both have them.

Clients get a reference to a task: its split, index and id. The task's row, which has the answers,
stays on the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.protocols.replies import (
    HttpRefusal,
    document,
    read_object,
    text_field,
    whole_number,
)
from gymmesh_resource.protocols.tasks import TaskTable
from gymmesh_responses import JsonValue
from gymmesh_runtime.errors import field_invalid

_MOST_LISTED: Final = 10_000
_SPLIT_KINDS: Final = ("train", "validation", "test")


class TaskApi:
    """The routes of one environment; `{name}` in a path is the environment's, in any case."""

    def __init__(self, name: str, tasks: TaskTable) -> None:
        self._name = name
        self._tasks = tasks

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Adds them, each below the environment's name and without it."""
        router.add_get("/list_environments", self._environments)
        for path in ("/{name}", ""):
            router.add_get(f"{path}/splits", self._splits)
            router.add_post(f"{path}/tasks", self._list)
            router.add_post(f"{path}/num_tasks", self._count)
            router.add_post(f"{path}/task", self._one)
            router.add_post(f"{path}/task_range", self._range)

    async def _environments(self, request: web.Request) -> web.Response:
        return document([self._name])

    async def _splits(self, request: web.Request) -> web.Response:
        check_name(request, self._name)
        kinds = {
            split: split if split in _SPLIT_KINDS else "validation" for split in self._tasks.splits
        }
        return document([{"name": name, "type": kind} for name, kind in kinds.items()])

    async def _list(self, request: web.Request) -> web.Response:
        check_name(request, self._name)
        split = text_field(await read_object(request), "split")
        count = self._tasks.count(split)
        if count > _MOST_LISTED:
            raise field_invalid(
                "split", f"has {count} tasks, too many for one list. Use num_tasks and task_range"
            )
        return document({"tasks": self._references(split, 0, count), "env_name": self._name})

    async def _count(self, request: web.Request) -> web.Response:
        check_name(request, self._name)
        split = text_field(await read_object(request), "split")
        return document({"num_tasks": self._tasks.count(split)})

    async def _one(self, request: web.Request) -> web.Response:
        check_name(request, self._name)
        body = await read_object(request)
        split, index = text_field(body, "split"), whole_number(body, "index") or 0
        if index < 0:
            index += self._tasks.count(split)
        task = self._tasks.task(split, index)
        return document({"task": _reference(split, index, task), "env_name": self._name})

    async def _range(self, request: web.Request) -> web.Response:
        check_name(request, self._name)
        body = await read_object(request)
        split = text_field(body, "split")
        count = self._tasks.count(split)
        wanted = slice(whole_number(body, "start"), whole_number(body, "stop")).indices(count)
        start, stop = wanted[0], min(wanted[1], wanted[0] + _MOST_LISTED)
        return document({"tasks": self._references(split, start, stop), "env_name": self._name})

    def _references(self, split: str, start: int, stop: int) -> list[JsonValue]:
        return [
            _reference(split, index, self._tasks.task(split, index)) for index in range(start, stop)
        ]


def check_name(request: web.Request, name: str) -> None:
    """Raises HttpRefusal for a path of another environment."""
    asked = request.match_info.get("name", name)
    if asked.lower() != name.lower():
        raise HttpRefusal(
            404,
            f"this server has no environment {asked!r:.100}, only the environment {name!r}",
        )


def task_of(tasks: TaskTable, spec: Mapping[str, Any]) -> rollout_pb2.Task:
    """The task of a reference, or of a whole row that a client sent.

    Raises FIELD_INVALID, TASK_INVALID.
    """
    if "split" in spec and "index" in spec:
        return tasks.task(text_field(spec, "split"), whole_number(spec, "index") or 0)
    if "responses_create_params" in spec or "prompt" in spec:
        return tasks.of_row(spec)
    task_id = spec.get("task_id")
    found = tasks.find(str(task_id)) if task_id is not None else None
    if found is None:
        raise field_invalid(
            "task",
            "does not name a task of this environment. Send 'split' and 'index', or 'task_id', or "
            "a whole row",
        )
    return found


def _reference(split: str, index: int, task: rollout_pb2.Task) -> JsonValue:
    return {"split": split, "index": index, "task_id": task.task_id}
