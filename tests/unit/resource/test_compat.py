"""A reference's own verdicts: chosen by configuration or by a row, and named in the verdict."""

from __future__ import annotations

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource import Environment, Rollout, Session, Verdict
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.environments import Judge
from tests.unit.resource.served import TIMEOUT, served, task


class Halves(Environment[None]):
    """Says 1; its reference says 0.5."""

    version = "2"
    references = ("nemo", "older")

    def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        follows = self.compat_of(rollout.task)
        return Verdict(0.5 if follows else 1.0, explanation=f"as  {follows or 'is right'}\n")


@pytest.mark.parametrize(
    ("configured", "row", "named"),
    [
        ("", {}, ""),
        ("nemo", {}, "nemo"),
        ("", {"compat": "older"}, "older"),
        ("nemo", {"compat": "older"}, "older"),
        ("nemo", {"compat": ""}, ""),
    ],
)
async def test_the_row_wins_over_the_configuration(
    configured: str, row: dict[str, str], named: str
) -> None:
    async with served(Halves(), compat=configured) as mesh:
        verdict = await mesh.verify(of=task(**row))
    assert verdict.reward == (0.5 if named else 1.0)
    assert verdict.compat == named
    assert verdict.verifier_version == (f"2+{named}" if named else "2")
    assert verdict.explanation == f"as {named or 'is right'}"


@pytest.mark.parametrize("wrong", ["bfcl", 1, None, ["nemo"]])
async def test_a_row_of_another_reference_cannot_be_judged(wrong: object) -> None:
    async with served(Halves()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(compat=wrong))
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert caught.value.metadata["field"] == "compat"
    assert "nemo, older" in caught.value.message


async def test_a_payload_key_of_that_name_is_the_environments_own_where_there_is_no_reference() -> (
    None
):
    async with served(Judge()) as mesh:
        verdict = await mesh.verify(of=task(kind="weighted", compat="anything"))
    assert verdict.compat == ""


@pytest.mark.parametrize(
    ("environment", "words"), [(Halves(), "this class are nemo, older"), (Judge(), "no reference")]
)
def test_a_configuration_of_another_reference_is_refused(
    environment: Environment[None], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        ResourceService(EnvironmentConfig(compat="bfcl"), "e", "e-0", environment=environment)


async def test_the_environment_says_which_references_it_knows_and_follows() -> None:
    async with served(Halves(), compat="nemo") as mesh:
        about = await mesh.resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=TIMEOUT
        )
    assert (about.verifier, about.verifier_version) == ("e", "2+nemo")
    assert (about.compat, about.references) == ("nemo", ["nemo", "older"])


async def test_an_explanation_is_one_line_that_the_contract_can_carry() -> None:
    class Long(Halves):
        def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
            return Verdict(1.0, explanation="\ud800" + "x" * 2_000)

    async with served(Long()) as mesh:
        verdict = await mesh.verify(of=task())
    assert len(verdict.explanation) == 500
    assert verdict.explanation.startswith("?x")
