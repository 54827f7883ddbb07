"""Environments before they are in a mesh: lists of environments, and tests of one environment."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_audit import AuditOptions
from gymmesh_conformance.cases import to_plain
from gymmesh_conformance.direct import PeerPath
from gymmesh_conformance.suites import ResourceTarget, TargetError, run_suite
from gymmesh_mesh.authoring.auditing import JudgesGroups, audit_here
from gymmesh_mesh.compose import make_service, open_here, sandboxes_for, specs_of
from gymmesh_mesh.config import MeshConfig
from gymmesh_resource.checks import Finding, try_out
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import About, about, environment_names, uses_of
from gymmesh_resource.service import RESOURCE_SERVICE, VERIFY_SERVICE, ResourceService
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import close_bounded

__all__ = [
    "About",
    "EnvironmentConfig",
    "Finding",
    "TokenizerName",
    "about",
    "generate_reasoning_gym",
    "index_documents",
    "installed",
    "is_index",
    "places",
    "trial",
]

TokenizerName: TypeAlias = Literal["unicode", "english", "trigram"]
"""How an index of web_search takes words apart."""

_SQLITE = b"SQLite format 3\0"
_MODEL = "gymmesh.model.v1.ModelService"
_CHECK = "conformance"
_AUDIT = "audit"
_AUDITED = 10  # tasks
_AUDIT_SHOWN = 3
_LIST_S = 10.0


def installed() -> list[About]:
    """The environments of all installed packages, by name."""
    return [about(name) for name in environment_names()]


def places(place: str, config: MeshConfig) -> dict[str, EnvironmentConfig]:
    """The environments of a place, by name. A place is a name of the configuration, an installed
    environment, a class, a file or a package's folder. Raises ConfigError.
    """
    if place in config.environments:
        return {place: config.environments[place]}
    try:
        uses = uses_of(place)
    except DefinitionError as error:
        raise ConfigError(str(error)) from None
    return {use.rpartition(":")[2]: EnvironmentConfig(use=use) for use in uses}


def index_documents(
    documents: Sequence[Path], output: Path, tokenizer: TokenizerName
) -> tuple[int, list[str]]:
    """Write the index of the environment web_search. Returns the number of documents in the index,
    and a line for each file that was skipped. Raises ConfigError.
    """
    from gymmesh_resource.environments.web_search.documents import DocumentError, read_documents
    from gymmesh_resource.environments.web_search.index import build_index

    passed_over: list[str] = []
    try:
        read = read_documents(documents, passed_over)
        return build_index(read, output, tokenizer=tokenizer), passed_over
    except (DocumentError, OSError, sqlite3.Error) as error:
        raise ConfigError(str(error)) from None


def is_index(path: Path) -> bool:
    """Whether a file is an index of the environment web_search. Raises OSError."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            return False
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            found = database.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.Error:
        return False
    return {"pages", "documents"} <= {name for (name,) in found}


def generate_reasoning_gym(
    datasets: Sequence[str],
    count: int,
    seed: int,
    *,
    settings: Mapping[str, Any],
    answer_tags: bool,
    output: Path | None,
) -> None:
    """Write tasks for the environment reasoning_gym to a file, or to standard output.

    Raises ConfigError.
    """
    from gymmesh_resource.environments.reasoning_gym.generate import generate_rows, write_rows

    try:
        rows = generate_rows(datasets, count, seed, config=settings, answer_tags=answer_tags)
        write_rows(rows, output)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from None


async def trial(
    name: str,
    environment: EnvironmentConfig,
    config: MeshConfig | None,
    *,
    tasks: Sequence[rollout_pb2.Task] = (),
    sessions: int = 100,
) -> list[Finding]:
    """Test an environment with the models of `config`. A stand-in that always answers "OK" replaces
    missing models.

    Raises ConfigError if a model of the configuration cannot be opened.
    """
    try:
        service = ResourceService(environment, name, f"{name}-trial")
    except ConfigError as error:
        return [Finding("loads", False, error.problem)]
    async with AsyncExitStack() as stack:
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        specs = () if config is None else specs_of(config)
        models = {one.name: one for one in specs if one.kind == "model"}
        stood_in = [name for name in service.model_names if name not in models]
        for model in service.model_names:
            if model in models:
                await open_here(make_service(models[model]), directory, stack)
            else:
                instance = discovery_pb2.Instance(
                    id=model, service=_MODEL, name=model, health=discovery_pb2.HEALTH_SERVING
                )
                directory.add_direct(instance, {_MODEL: _StandIn()})
        stack.push_async_callback(close_bounded, service)
        try:
            for sandboxes in sandboxes_for([service], config):
                await open_here(sandboxes, directory, stack)
            await service.open(directory)
        except ConfigError as error:
            return [Finding("loads", False, error.problem)]
        loaded = f"{environment.use}"
        if stood_in:
            loaded += (
                f'; a stand-in that always answers "OK" replaces the models {", ".join(stood_in)}'
            )
        found = await try_out(service, directory, tasks=tasks, sessions=sessions)
        found.append(await _conforms(service, directory, tasks))
    found.append(await _audited(name, environment, config, tasks))
    return [Finding("loads", True, loaded), *found]


async def _audited(
    name: str,
    environment: EnvironmentConfig,
    config: MeshConfig | None,
    tasks: Sequence[rollout_pb2.Task],
) -> Finding:
    """The cheap part of the audit: what answers earn that are made from nothing. A warning."""
    options = AuditOptions(cheap=True, tasks=_AUDITED)
    try:
        report = await audit_here(name, environment, config, options, tasks=tasks)
    except JudgesGroups as error:
        return Finding(_AUDIT, True, f"not audited: {error}")
    except (MeshError, ConfigError) as error:
        return Finding(_AUDIT, True, f"not audited: {error}", warning=True)
    wrong = report.open_weaknesses
    if not wrong:
        tried = sum(share.played for share in report.shares.values())
        return Finding(_AUDIT, True, f"none of {tried} cheap answers got an undeserved reward")
    shown = "; ".join(f"{one.said}: {one.detail}" for one in wrong[:_AUDIT_SHOWN])
    more = f" and {len(wrong) - _AUDIT_SHOWN} more" if len(wrong) > _AUDIT_SHOWN else ""
    told = f"{shown}{more}".rstrip(".")
    return Finding(_AUDIT, True, f"{told}. List all with gym-cli env audit", warning=True)


async def _conforms(
    service: ResourceService, directory: PeerDirectory, tasks: Sequence[rollout_pb2.Task]
) -> Finding:
    """Runs the suite for environments over one that is in the directory, directly.

    The profile is made of its first task alone, so cases that need to know a tool call or a right
    answer are left out; `python -m gymmesh_conformance` takes a profile that names them.
    """
    instance = discovery_pb2.Instance(
        id=service.instance_id, service=RESOURCE_SERVICE, name=service.name
    )
    resource = directory.peer(instance)
    try:
        task = tasks[0] if tasks else await _first_example(resource)
        if task is None:
            return Finding(
                _CHECK,
                False,
                "no task to test with. Set `examples` in the class to a list of task rows",
            )
        path = PeerPath({"resource": resource, "verify": directory.peer(instance, VERIFY_SERVICE)})
        profile = {"task": to_plain(task), "has_examples": not tasks}
        results = await run_suite(ResourceTarget(path, profile))
    except (MeshError, TargetError) as error:
        return Finding(_CHECK, False, str(error))
    for result in results:
        if result.outcome == "failed":
            return Finding(_CHECK, False, f"{result.name}: {'; '.join(result.problems)}")
    passed = sum(result.outcome == "passed" for result in results)
    left = len(results) - passed
    return Finding(
        _CHECK,
        True,
        f"{passed} cases passed. {left} cases were skipped: they don't apply, or need a profile "
        "of gym-cli conformance",
    )


async def _first_example(resource: Any) -> rollout_pb2.Task | None:
    request = resource_pb2.ListTasksRequest(page_size=1)
    reply: resource_pb2.ListTasksResponse = await resource.ListTasks(request, timeout=_LIST_S)
    return reply.tasks[0] if reply.tasks else None


class _StandIn:
    """A model service that agrees with everything."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        response = responses_pb2.Response(
            status="completed",
            output=[new_message("assistant", "OK")],
            usage=responses_pb2.Usage(input_tokens=1, output_tokens=1),
        )
        return model_pb2.CreateResponseResponse(response=response, call_id=request.call_id)
