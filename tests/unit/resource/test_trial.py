"""The trial of an environment: what it finds wrong, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import (
    Environment,
    Member,
    Outcome,
    Rollout,
    Session,
    Task,
    Transcript,
    Turn,
    tool,
)
from gymmesh_resource.checks import CannotMakeUp, Finding, made_up, try_out
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.resource.environments import Game, Ranked
from tests.unit.resource.served import task

SHARED: list[str] = []


class Sound(Environment[list[str]]):
    """Nothing is wrong with it."""

    state = list

    @tool
    async def say(self, session: Session[list[str]], text: str) -> str:
        """Say something."""
        return text

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 0.0


class Sharing(Sound):
    """All sessions have one state."""

    def create_state(self, task: Task, seed: int) -> list[str]:
        return SHARED


class Careless(Sound):
    """Its verifier breaks where nothing was said."""

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return float(rollout.texts[-1] == "x")


class Silent(Sound):
    """Its turns say nothing and never end."""

    async def next_turn(self, session: Session[list[str]], new: Transcript) -> Turn:
        return Turn()


class Crowded(Sound):
    """Breaks when a session is opened while others are."""

    def __init__(self) -> None:
        self.open_sessions = 0

    def create_state(self, task: Task, seed: int) -> list[str]:
        self.open_sessions += 1
        if self.open_sessions > 5:
            raise RuntimeError("too many")
        return []

    def close_session(self, session: Session[list[str]]) -> None:
        self.open_sessions -= 1


class Deaf(Sound):
    """Offers a tool and answers no calls of it."""

    def session_tools(self, session: Session[list[str]]) -> Sequence[dict[str, Any]]:
        return [{"type": "function", "name": "a", "description": "x", "parameters": {}}]


class Hearing(Sound):
    """Answers calls of any tool."""

    async def call_other(
        self, session: Session[list[str]], name: str, arguments: dict[str, Any]
    ) -> str:
        return "yes"


class Nameless(Hearing):
    """Offers a tool that no model's host takes."""

    def session_tools(self, session: Session[list[str]]) -> Sequence[dict[str, Any]]:
        return [{"type": "function", "name": "a b", "description": "x", "parameters": {}}]


class NoSchema(Hearing):
    """Offers a tool whose parameters are no JSON Schema."""

    def session_tools(self, session: Session[list[str]]) -> Sequence[dict[str, Any]]:
        parameters = {"type": "object", "properties": {"a": {"type": "colour"}}}
        return [{"type": "function", "name": "a", "description": "x", "parameters": parameters}]


class Mute(Sound):
    __doc__ = None


class Broken(Sound):
    """Its one tool breaks whenever it is called as it should be."""

    @tool
    async def say(self, session: Session[list[str]], text: str) -> str:
        """Say something."""
        raise RuntimeError("out of order")


class BreaksInGroups(Sound):
    """Judges groups by an answer that nobody gave."""

    def verify_group(self, task: Task, members: Sequence[Member]) -> Sequence[Outcome]:
        return [float(member.rollout.texts[-1] == "x") for member in members]


class JudgesGroupsByState(Sound):
    """Judges groups by what was said in them."""

    def verify_group(self, task: Task, members: Sequence[Member]) -> Sequence[Outcome]:
        return [float(len(member.state) > 3) for member in members]


class Generous(Sound):
    """Rewards whoever is there."""

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 1.0


class PaysForAnswers(Sound):
    """Rewards any answer, also an empty one."""

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return float(bool(rollout.texts))


class PaysForCalls(Sound):
    """Rewards any call of a tool."""

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 0.5 * bool(rollout.tool_calls)


class Missing(Sound):
    """Its example tasks were forgotten."""

    examples = "nowhere.jsonl"


async def tried(environment: Environment[Any], *tasks: rollout_pb2.Task) -> list[Finding]:
    service = ResourceService(EnvironmentConfig(), "e", "e-0", environment=environment)
    directory = PeerDirectory()
    await service.open(directory)
    try:
        return await try_out(service, directory, tasks=tasks, sessions=20)
    finally:
        await service.close()


async def wrong(environment: Environment[Any], *tasks: rollout_pb2.Task) -> dict[str, str]:
    """The checks that failed, with what they say."""
    return {one.check: one.detail for one in await tried(environment, *tasks) if not one.fine}


async def warned(environment: Environment[Any]) -> dict[str, str]:
    """The checks that came to a warning, with what they say."""
    found = await tried(environment, task("a"), task("b"))
    assert all(one.fine for one in found)
    return {one.check: one.detail for one in found if one.warning}


@pytest.mark.parametrize(
    "environment", [Sound(), Game(), Ranked(), Missing(), JudgesGroupsByState()]
)
async def test_sound_environments_pass(environment: Environment[Any]) -> None:
    assert await wrong(environment, task("a"), task("b")) == {}


@pytest.mark.parametrize(
    ("environment", "checks"),
    [
        (Sound(), []),
        (
            Generous(),
            ["verdict on nothing", "verdict on an empty answer", "verdict on calls alone"],
        ),
        (PaysForAnswers(), ["verdict on an empty answer"]),
        (PaysForCalls(), ["verdict on calls alone"]),
    ],
)
async def test_a_reward_for_nothing_is_a_warning(
    environment: Environment[Any], checks: list[str]
) -> None:
    found = await warned(environment)
    assert list(found) == checks
    assert all("A policy would learn to produce such rollouts" in said for said in found.values())


SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    {"properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 4}}, "required": ["a", "b"]},
    {"properties": {"a": {"type": "integer", "minimum": 7, "maximum": 9}}, "required": ["a"]},
    {"properties": {"a": {"type": "number", "exclusiveMaximum": -2}}, "required": ["a"]},
    {"properties": {"a": {"type": "integer", "multipleOf": 5, "minimum": 6}}, "required": ["a"]},
    {"properties": {"a": {"type": "string", "minLength": 60}}, "required": ["a"]},
    {"properties": {"a": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"}}, "required": ["a"]},
    {"properties": {"a": {"type": "string", "format": "email"}}, "required": ["a"]},
    {"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}, "required": ["a"]},
    {"properties": {"a": {"type": ["null", "array"], "minItems": 2}}, "required": ["a"]},
    {
        "properties": {"a": {"$ref": "#/$defs/P"}},
        "required": ["a"],
        "$defs": {"P": {"type": "object", "properties": {"x": {}}, "required": ["x"]}},
    },
    {"properties": {"a": {"allOf": [{"type": "string"}, {"maxLength": 2}]}}, "required": ["a"]},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_that_are_made_up_are_valid(schema: dict[str, Any]) -> None:
    arguments = made_up(schema)
    jsonschema.Draft202012Validator(schema).validate(arguments)
    assert set(arguments) == set(schema.get("required", ()))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "pattern": "^never seen$"},
        {"$ref": "#/$defs/Gone"},
        {"$ref": "#"},
        {"type": "integer", "minimum": 3, "maximum": 2},
    ],
)
def test_what_cannot_be_made_up_is_said(part: dict[str, Any]) -> None:
    with pytest.raises(CannotMakeUp):
        made_up({"properties": {"a": part}, "required": ["a"]})


@pytest.mark.parametrize(
    ("environment", "check", "said"),
    [
        (Sharing(), "sessions", "share one state"),
        (Silent(), "turns", "returned a Turn without `say`"),
        (Crowded(), "load", "sessions failed"),
        (Deaf(), "wrong calls", "Define call_other"),
        (NoSchema(), "tools", "not a JSON Schema"),
        (Mute(), "describes itself", "no docstring"),
        (Broken(), "calls", 'say({"text":"text"}): ENVIRONMENT_FAULT'),
        (BreaksInGroups(), "verdict on a group", "IndexError"),
    ],
)
async def test_what_is_wrong_is_found_and_nothing_else(
    environment: Environment[Any], check: str, said: str
) -> None:
    found = await wrong(environment, task("a"), task("b"))
    assert list(found) == [check]
    assert said in found[check]


async def test_a_tool_of_a_name_that_endpoints_refuse_is_named() -> None:
    found = await wrong(Nameless(), task("a"))
    assert next(iter(found)) == "tools"
    assert "session_tools: 'a b' is not a valid tool name" in found["tools"]


async def test_a_verifier_that_breaks_on_nothing_is_found() -> None:
    found = await wrong(Careless(), task("a"))
    assert {"verdict on nothing", "load"} <= set(found)
    assert "VERIFIER_FAULT" in found["verdict on nothing"]


async def test_without_tasks_little_can_be_tried_and_that_is_said() -> None:
    found = await wrong(Sound())
    assert "has no example tasks" in found["tasks"]
    assert found["load"] == "not checked, because the environment has no tasks"
    assert "create nowhere.jsonl" in (await wrong(Missing()))["tasks"]


async def test_two_tasks_of_one_id_are_found() -> None:
    assert "the id 'a'" in (await wrong(Sound(), task("a"), task("a")))["tasks"]
