"""The files of the agent stand on floors: what a file imports is below it, and no circle exists."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import gymmesh_agent

ROOM = Path(gymmesh_agent.__file__).parent
#: From the roof down. A file imports its own floor and those below, never one above.
FLOORS = (
    ("service",),
    ("attempt", "choices", "tool_loop"),
    ("agent", "context"),
    ("environment_calls",),
    ("gateway.gateway", "gateway.replies", "gateway.server"),
    ("gateway.session",),
    (
        "environment.session",
        "model.client",
        "model.conversation",
        "sandboxes",
        "telemetry.rollouts",
    ),
    (
        "config",
        "environment.verification",
        "events",
        "failures",
        "gateway.bodies",
        "gateway.config",
        "gateway.connections",
        "gateway.environment_tools",
        "gateway.keys",
        "gateway.metrics",
        "gateway.minted",
        "gateway.request",
        "loop",
        "media",
        "model.answer",
        "model.choices",
        "model.gateway_call",
        "model.metrics",
        "model.tokens",
        "plan",
        "tally",
        "telemetry.metrics",
    ),
)
#: Rooms of their own.
ROOMS = ("collect_stream", "gateway/dialects", "gateway/tree", "programs")


def imports() -> dict[str, set[str]]:
    """The files of the room, and what each imports of it, but for rooms of their own."""
    files = {
        ".".join(file.relative_to(ROOM).with_suffix("").parts): file
        for file in ROOM.rglob("*.py")
        if file.stem != "__init__" and not file.relative_to(ROOM).as_posix().startswith(ROOMS)
    }
    found = {}
    for name, file in files.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        modules = [one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
        found[name] = {module.removeprefix(f"{ROOM.name}.") for module in modules} & set(files)
    return found


def test_there_is_no_circle_of_files() -> None:
    TopologicalSorter(imports()).prepare()  # raises CycleError


def test_no_file_imports_a_floor_above_its_own() -> None:
    height = {name: -number for number, floor in enumerate(FLOORS) for name in floor}
    graph = imports()
    assert sorted(height) == sorted(graph)
    upward = [(one, other) for one in graph for other in graph[one] if height[other] > height[one]]
    assert not upward
