"""Rewards of several named functions, and plain functions as environments."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import (
    DefinitionError,
    Environment,
    EnvironmentConfig,
    ResourceService,
    Rollout,
    Session,
    Skipped,
    Task,
    Verdict,
    reward,
)
from gymmesh_resource.config import RewardConfig
from gymmesh_resource.registry import about, environment_class, make_environment, uses_of
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory


class Writing(Environment[None]):
    """Rewards a right and short answer."""

    @reward
    def right(self, answer: str, wanted: str) -> bool:
        return wanted in answer

    @reward(weight=0.5)
    async def short(self, session: Session[None], rollout: Rollout, most: int = 5) -> float:
        assert session.task.id == rollout.task.id
        return float(len(rollout.answer) <= most)


class Cautious(Writing):
    """Unmarks one part, and may skip the other."""

    short = None  # type: ignore[assignment]  # as authors unmark a part

    def right(self, answer: str, wanted: str) -> bool | Skipped:  # type: ignore[override]  # wider
        return super().right(answer, wanted) if answer else Skipped("nothing was said")


class Judged(Environment[None]):
    """Has a verifier of its own."""

    def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        return Verdict(0.5, {"style": 3.0}, {"read": rollout.answer}, "half right")


async def verdict(
    kind: type[Environment[Any]] | str, answer: str, *, rewards: Any = None, **row: Any
) -> rollout_pb2.Verification:
    environment = make_environment(kind, {}) if isinstance(kind, str) else kind()
    config = EnvironmentConfig(rewards=rewards or {})
    service = ResourceService(config, "e", "e-0", environment=environment)
    await service.open(PeerDirectory())
    try:
        verifier = service.servicers()["gymmesh.verify.v1.VerifyService"]
        request = verify_pb2.VerifyRequest(
            task=Task.of({"prompt": "?", **row}).message,
            transcript=[new_message("assistant", answer)],
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        reply = await verifier.Verify(request, CallContext("r"))  # type: ignore[attr-defined]
        found: rollout_pb2.Verification = reply.verification
        return found
    finally:
        await service.close()


def parts(found: rollout_pb2.Verification) -> dict[str, tuple[float, float]]:
    return {one.name: (one.value, one.weight) for one in found.components}


async def test_functions_are_components_and_their_sum_is_the_reward() -> None:
    found = await verdict(Writing, "it is 42", wanted="42", most=3)
    assert found.reward == 1.0
    assert parts(found) == {"right": (1.0, 1.0), "short": (0.0, 0.5)}
    assert found.explanation == "right 1, short 0"
    assert [stage.name for stage in found.stages] == ["right", "short"]
    assert (await verdict(Writing, "42", wanted="42")).reward == 1.5  # the weights' sum is allowed


async def test_the_configuration_changes_weights_and_functions(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def loud(text): return float(text.isupper())\n")
    rewards = {
        "short": 0.1,
        "right": RewardConfig(use=f"{file}:loud"),
        "loud": RewardConfig(use=f"{file}:loud", weight=-0.25),
    }
    found = await verdict(Writing, "YES", rewards=rewards)
    assert parts(found) == {"right": (1.0, 1.0), "short": (1.0, 0.1), "loud": (1.0, -0.25)}
    assert found.reward == pytest.approx(0.85)


async def test_a_verifier_is_one_part_beside_functions(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def loud(text): return float(text.isupper())\n")
    alone = await verdict(Judged, "hm")
    assert (alone.reward, alone.explanation) == (0.5, "half right")
    rewards = {"verify": 0.8, "loud": RewardConfig(use=f"{file}:loud", weight=0.2)}
    found = await verdict(Judged, "HM", rewards=rewards)
    assert found.reward == pytest.approx(0.6)
    assert parts(found) == {"style": (3.0, 0.0), "verify": (0.5, 0.8), "loud": (1.0, 0.2)}
    assert found.evidence_json == b'{"read":"HM"}'
    assert found.explanation == "half right"


async def test_a_part_that_is_not_judged_is_not_zero() -> None:
    assert (await verdict(Cautious, "", wanted="4")).reason == "nothing was said"
    assert parts(await verdict(Cautious, "4", wanted="4")) == {"right": (1.0, 1.0)}


async def test_a_task_without_a_key_that_a_function_reads_is_refused() -> None:
    with pytest.raises(
        MeshError, match=r"wanted is missing\. The reward function 'right'"
    ) as caught:
        await verdict(Writing, "42")
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ({"shrt": 1.0}, "did you mean 'short'"),
        ({"new": RewardConfig(use="nowhere.py:f")}, "no file nowhere.py"),
        ({"new": RewardConfig(use="math:pi")}, "is not a function"),
        ({"short": float("inf")}, "not finite"),
    ],
)
def test_a_reward_that_cannot_be_meant_is_refused(rewards: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ResourceService(EnvironmentConfig(rewards=rewards), "e", "e-0", environment=Writing())


FUNCTIONS = '''
"""Rewards."""
from helpers import normal

examples = [{"prompt": "2 + 2?", "expected_answer": "4"}]

def exact(answer, expected_answer):
    """Whether the answer is the expected one."""
    return normal(answer) == normal(expected_answer)

async def whole(rollout, **row):
    return float(row["expected_answer"] in rollout.answer)

def _helper(): ...
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "reward.py"
    path.write_text(FUNCTIONS)
    (tmp_path / "helpers.py").write_text("def normal(text): return text.strip().lower()\n")
    return path


async def test_a_plain_function_is_an_environment(file: Path) -> None:
    found = await verdict(f"{file}:exact", " A ", expected_answer="a")
    assert (found.reward, parts(found)) == (1.0, {"exact": (1.0, 1.0)})
    assert (await verdict(f"{file}:exact", "b", expected_answer="a")).reward == 0.0
    assert (await verdict(f"{file}:whole", "xax", expected_answer="a")).reward == 1.0
    shown = about(f"{file}:exact")
    assert shown.description == "Whether the answer is the expected one."
    assert environment_class(f"{file}:exact") is environment_class(f"{file}:exact")
    assert uses_of(str(file)) == [f"{file}:exact", f"{file}:whole"]
    environment = make_environment(f"{file}:exact", {"reward_range": [-1, 1]})
    assert environment.reward_range == (-1, 1)
    assert list(environment.tasks()) == [{"prompt": "2 + 2?", "expected_answer": "4"}]


def test_files_of_two_folders_have_modules_of_one_name(tmp_path: Path) -> None:
    """Each file imports the module beside it, whatever was imported before."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "beside_it.py").write_text(f"NAME = {name!r}\n")
        (folder / "env.py").write_text("from beside_it import NAME\ndef f(text): return NAME\n")
    kinds = [environment_class(f"{tmp_path / name}/env.py:f") for name in ("one", "two")]
    assert [kind().reward_functions()["f"][0]("") for kind in kinds] == ["one", "two"]


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("def verify(self, rollout): return 1.0", r"own.py:5: Own.verify\(self, rollout\) must"),
        ("def verify(self): return 1.0", r"must be written verify\(self, session, rollout\)"),
        ("def create_state(self): return {}", r"must be written create_state\(self, task, seed\)"),
    ],
)
def test_a_wrong_signature_is_named_in_the_authors_file(
    tmp_path: Path, method: str, said: str
) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        textwrap.dedent(f"""\
            from gymmesh_resource import Environment
            class Own(Environment):
                '''Own.'''
                verify_group = lambda self, task, members: []
                {method}
            """)
    )
    with pytest.raises(ConfigError, match=said):
        ResourceService(EnvironmentConfig(use=f"{path}:Own"), "own", "own-0")


def test_a_function_that_takes_what_nobody_gives_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def f(text, *more): return 1.0\n")
    with pytest.raises((ConfigError, DefinitionError), match=r"own.py:1: .*'more' can't be"):
        ResourceService(EnvironmentConfig(use=f"{path}:f"), "own", "own-0")
