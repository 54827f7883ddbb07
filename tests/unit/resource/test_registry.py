"""Finding environments, their options and example tasks; mistakes are one clear sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

import gymmesh_resource
from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource import (
    Environment,
    EnvironmentConfig,
    ResourceService,
    Rollout,
    Session,
    Task,
    tool,
)
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import environment_class, environment_names, make_environment
from gymmesh_runtime.config import ConfigError
from tests.unit.resource.served import TIMEOUT, served

SHOP = Path(__file__).parents[3] / "examples" / "first_environment" / "shop.py"


def test_the_public_face_is_sorted_and_complete() -> None:
    assert gymmesh_resource.__all__ == sorted(gymmesh_resource.__all__)
    for name in gymmesh_resource.__all__:
        assert getattr(gymmesh_resource, name) is not None
    with pytest.raises(AttributeError):
        _ = gymmesh_resource.nothing


def test_by_entry_point_module_and_file() -> None:
    assert "math" in environment_names()
    by_name = environment_class("math")
    assert by_name is environment_class("gymmesh_resource.environments.math:MathEnvironment")
    assert environment_class(f"{SHOP}:Shop") is environment_class(f"{SHOP}:Shop")


@pytest.mark.parametrize(
    ("use", "options", "hint"),
    [
        ("maths", {}, "did you mean 'math'"),
        ("no_such_module:X", {}, "No module named 'no_such_module'"),
        (f"{SHOP}:Shopp", {}, f"The environments in {SHOP}: Shop"),
        ("./missing.py:X", {}, "no file ./missing.py"),
        ("collections:Counter", {}, "neither a subclass"),
        ("math", {"tool_patern": "x"}, "did you mean 'tool_pattern'"),
        ("math", {"judge_workers": "two"}, "option `judge_workers`"),
        ("math", {"tool_pattern": "("}, "not a regular expression"),
        ("workspace", {"network": "nope"}, "'nope'; valid here: agent, none, open or a list"),
        ("workspace", {"checks_network": 1}, "option `checks_network`"),
        (f"{SHOP}:Shop", {"size": 1}, "no option 'size'"),
    ],
)
def test_mistakes_in_the_configuration(use: str, options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=r"^environments\.shop: ") as caught:
        ResourceService(EnvironmentConfig(use=use, options=options), "shop", "shop-0")
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_reach_the_class() -> None:
    environment = make_environment("math", {"judge_workers": 1, "judge_timeout_s": 2})
    assert environment.processes == 1


class _Base(Environment[None]):
    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


class _Unjudged(Environment[None]):
    pass


class _Shared(_Base):
    state: ClassVar[Any] = []  # that is the mistake


class _Silent(_Base):
    @tool
    def speak(self) -> str:
        return ""


class _AsyncCheck(_Base):
    async def check_task(self, task: Task) -> None:  # type: ignore[override]  # the mistake
        pass


class _BrokenExample(_Base):
    def tasks(self) -> list[dict[str, Any]]:
        return [{"expected": 1}]


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        (_Unjudged(), "no verifier"),
        (_Shared(), "new object for each session"),
        (_Silent(), "no docstring"),
        (_AsyncCheck(), "_AsyncCheck.check_task is async, but gymmesh does not await this method"),
        (_BrokenExample(), "Example task 1"),
    ],
)
def test_mistakes_of_the_author(environment: Environment[Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        ResourceService(EnvironmentConfig(), "e", "e-0", environment=environment)


async def test_an_environment_has_its_own_time_to_open() -> None:
    class Slow(_Base):
        open_timeout_s = 0.05

        async def open(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(ConfigError, match=r"did not open: TookTooLong: took longer than 0\.05 s"):
        async with served(Slow()):
            pass


async def test_an_environment_that_does_not_open_is_one_sentence() -> None:
    class Closed(_Base):
        def open(self) -> None:
            raise OSError("no index at docs.db")

    with pytest.raises(ConfigError, match=r"did not open: OSError: no index at docs\.db"):
        async with served(Closed()):
            pass


async def test_example_tasks_come_in_pages() -> None:
    async with served(use=f"{SHOP}:Shop") as mesh:
        seen, token = [], ""
        for _ in range(3):
            request = {"page_size": 1, "page_token": token}
            page = await mesh.resource.ListTasks(
                gymmesh_request("ListTasksRequest", request), timeout=TIMEOUT
            )
            seen += [task.task_id for task in page.tasks]
            token = page.next_page_token
            if not token:
                break
        tools = await mesh.resource.ListTools(
            gymmesh_request("ListToolsRequest", {}), timeout=TIMEOUT
        )
    assert seen == ["shop-1", "shop-2"]
    assert [tool.function.name for tool in tools.tools] == ["add"]


@pytest.mark.parametrize(
    "request_fields", [{"page_size": -1}, {"page_token": "x"}, {"page_token": "9"}]
)
async def test_pages_that_there_are_not(request_fields: dict[str, Any]) -> None:
    async with served(use=f"{SHOP}:Shop") as mesh:
        with pytest.raises(Exception, match="FIELD_INVALID"):
            await mesh.resource.ListTasks(
                gymmesh_request("ListTasksRequest", request_fields), timeout=TIMEOUT
            )


def gymmesh_request(name: str, fields: dict[str, Any]) -> Any:
    return getattr(resource_pb2, name)(**fields)


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("sys.exit(4)", r"SystemExit\(4\) at .*own\.py:5"),
        ("{}['key']", r"KeyError: 'key' at .*own\.py:5"),
        ("raise BaseException('panic')", r"BaseException: panic at .*own\.py:5"),
    ],
)
def test_what_an_init_raises_is_one_sentence(init: str, said: str, tmp_path: Path) -> None:
    """It ended the command with its own exit code, or with a traceback."""
    own = "from gymmesh_resource import Environment\nimport sys\nclass Own(Environment):\n"
    (tmp_path / "own.py").write_text(
        f"{own}    def __init__(self, *, size: int = 1):\n        {init}"
    )
    with pytest.raises(DefinitionError, match=rf"cannot be created: {said}"):
        make_environment(f"{tmp_path / 'own.py'}:Own", {})


def test_a_script_that_ends_its_process_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(4)")
    with pytest.raises(DefinitionError, match=r"cannot be imported: SystemExit\(4\)"):
        make_environment(f"{tmp_path / 'script.py'}:Own", {})
