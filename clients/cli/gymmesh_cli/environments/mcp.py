"""gym-cli env mcp: a session for an agent outside of the mesh; the agent calls tools over MCP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import (
    FILE,
    MeshOptions,
    SecurityOptions,
    json_option,
    mesh_options,
    security_options,
    tasks_option,
)
from gymmesh_cli.terminal import GroupedCommand, OptionGroup, echo, option, report

if TYPE_CHECKING:
    from gymmesh.rollout.v1 import rollout_pb2
    from gymmesh_mesh.authoring.mcp_session import McpSession, OfferedEnvironment

_LOOK_S: Final = 0.5


@click.command(
    "mcp",
    cls=GroupedCommand,
    short_help="Open a session of an environment and serve the tools over MCP.",
)
@click.argument("name")
@mesh_options
@tasks_option
@option(
    "--task-id",
    group=OptionGroup.TASKS,
    metavar="ID",
    help="Id of the task for the session. Default: the first task.",
)
@option(
    "--seed",
    group=OptionGroup.TASKS,
    type=int,
    help="Seed of the session. Default: the task's seed.",
)
@option(
    "--registry",
    group=OptionGroup.MODELS,
    metavar="HOST:PORT",
    help=(
        "Use an environment of a running mesh. HOST:PORT is the registry's address, "
        "which `gym-cli up` prints."
    ),
)
@option(
    "--verify",
    group=OptionGroup.ANSWERS,
    is_flag=True,
    help="When the session ends, verify the rollout and print the verdict.",
)
@option(
    "--answer",
    group=OptionGroup.ANSWERS,
    type=FILE,
    help=(
        "With --verify: file with the agent's last message. The command reads the file "
        "when the session ends."
    ),
)
@security_options
@json_option
def mcp(
    name: str,
    mesh: MeshOptions,
    tasks_file: Path | None,
    registry: str | None,
    security: SecurityOptions,
    **asked: Any,
) -> None:
    """Open a session of an environment for an agent outside the mesh, and serve the environment's
    tools over MCP.

    The command prints the URL of the MCP server (streamable HTTP) and the session's token. The
    agent must send the token as "Authorization: Bearer TOKEN". The session stays open until the
    environment ends the episode, or until you press Ctrl-C. In both cases, the exit code is 0.

    NAME is an environment of --config, an installed environment, or an environment of the mesh at
    --registry.

    \b
      gym-cli env mcp workplace --verify
      gym-cli env mcp math --tasks tasks.jsonl --task-id add-1 --verify --answer answer.txt
      gym-cli env mcp desk --registry 127.0.0.1:9400 --json
    """
    import asyncio

    if asked["answer"] is not None and not asked["verify"]:
        raise click.UsageError("--answer is the answer that --verify judges; add --verify")
    task = _task_of(name, tasks_file, asked["task_id"]) if tasks_file is not None else None
    asyncio.run(_hold(_environment(name, mesh, registry, security), task, **asked))


def _environment(
    name: str, mesh: MeshOptions, registry: str | None, security: SecurityOptions
) -> AbstractAsyncContextManager[OfferedEnvironment]:
    from gymmesh_mesh.authoring.mcp_session import environment_alone, environment_at

    if registry is None:
        security.refuse("--registry")
        return environment_alone(name, mesh.load())
    if mesh != MeshOptions():
        raise click.UsageError(
            "--registry selects a running mesh, which already has a configuration. Remove the "
            "options that configure a mesh, such as --config and --set"
        )
    return environment_at(registry, name, security.over())


async def _hold(
    opening: AbstractAsyncContextManager[OfferedEnvironment],
    task: rollout_pb2.Task | None,
    *,
    task_id: str | None,
    seed: int | None,
    verify: bool,
    answer: Path | None,
    as_json: bool,
) -> None:
    from gymmesh_client.rows import verification_row

    async with opening as environment:
        if task is None:
            task = await _example(environment, task_id)
        async with environment.session(task, seed=seed) as session:
            shown = _told(environment.name, task, session)
            report(as_json, shown, _as_text(shown))
            if not as_json:
                echo("Press Ctrl-C to end the session.", err=True)
            await _until_over(session)
            if verify:
                verdict = await session.verify(_read(answer))
                document = {"verification": verification_row(verdict)}
                report(as_json, document, _verdict_text(verdict))


async def _until_over(session: McpSession) -> None:
    import asyncio

    from gymmesh_cli.shared.interrupts import interrupting

    stop = asyncio.Event()
    with interrupting(stop.set):
        while not (stop.is_set() or await session.ended()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()


def _task_of(environment: str, file: Path, task_id: str | None) -> rollout_pb2.Task:
    from gymmesh_cli.shared.task_choice import right_tasks
    from gymmesh_client.problems import UserError
    from gymmesh_client.tasks import TaskDefaults, TaskReader

    for task in right_tasks(TaskReader(TaskDefaults(environment, "mcp")), file):
        if task_id is None or task.task_id == task_id:
            return task
    raise UserError(f"{file} has no task" + (f" {task_id!r}" if task_id else "s"))


async def _example(environment: OfferedEnvironment, task_id: str | None) -> rollout_pb2.Task:
    from gymmesh_client.problems import UserError

    task = await environment.example(task_id)
    if task is None:
        which = f" {task_id!r}" if task_id else ""
        raise UserError(
            f"environment {environment.name!r} has no example task{which}. Pass a task file with "
            "--tasks"
        )
    return task


def _read(file: Path | None) -> str:
    from gymmesh_client.problems import UserError

    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None


def _told(environment: str, task: rollout_pb2.Task, session: McpSession) -> dict[str, Any]:
    from gymmesh_responses import items_to_list, params_to_dict

    return {
        "environment": environment,
        "task_id": task.task_id,
        "url": session.url,
        "token": session.token,
        "tools": session.tools,
        "input": params_to_dict(task.params).get("input", []),
        "first_items": items_to_list(session.items),
    }


def _as_text(shown: dict[str, Any]) -> Iterator[str]:
    yield f"{shown['environment']}: opened a session for task {shown['task_id']}"
    yield f"url    {shown['url']}"
    yield f"token  {shown['token']}"
    yield f"tools  {', '.join(shown['tools']) or 'none'}"


def _verdict_text(verdict: rollout_pb2.Verification) -> Iterator[str]:
    from gymmesh_cli.terminal.events import verdict_text
    from gymmesh_responses import bytes_to_text

    yield verdict_text(verdict)
    if verdict.evidence_json:
        yield bytes_to_text(verdict.evidence_json)
