"""Our gateway goes through its suite, and the suite finds a gateway that is wrong."""

from __future__ import annotations

import pytest

from gymmesh_conformance.gateway import run_gateway_suite, select_gateway_cases
from tests.conformance.our_gateway import OurGateway

NAMES = [f"{program.program}/{case.name}" for program, case in select_gateway_cases(())]


@pytest.mark.parametrize("name", NAMES)
async def test_our_gateway_conforms(name: str) -> None:
    (result,) = await run_gateway_suite(OurGateway(), only=[name])
    assert result.problems == ()
    assert result.outcome == "passed"


def test_ten_programs_are_recorded() -> None:
    assert len({name.partition("/")[0] for name in NAMES}) == 10
