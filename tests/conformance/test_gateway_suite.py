"""Our gateway goes through its suite, and the suite finds a gateway that is wrong."""

from __future__ import annotations

import pytest

from gymmesh_conformance.command import FAILED, USAGE, Options, run
from gymmesh_conformance.gateway import run_gateway_suite, select_gateway_cases
from tests.conformance.one_chain_gateway import OneChainGateway
from tests.conformance.our_gateway import OurGateway

NAMES = [f"{program.program}/{case.name}" for program, case in select_gateway_cases(())]


@pytest.mark.parametrize("name", NAMES)
async def test_our_gateway_conforms(name: str) -> None:
    (result,) = await run_gateway_suite(OurGateway(), only=[name])
    assert result.problems == ()
    assert result.outcome == "passed"


def test_ten_programs_are_recorded() -> None:
    assert len({name.partition("/")[0] for name in NAMES}) == 10


async def test_a_gateway_with_one_chain_is_found_out() -> None:
    results = {result.name: result for result in await run_gateway_suite(OneChainGateway())}
    passed = {name for name, result in results.items() if result.outcome == "passed"}
    # One conversation over Chat Completions, and nothing beside it.
    assert passed == {
        "aider/has_examples_in_its_prompt",
        "openhands/changes_the_system_text",
        "openhands/continues",
        "qwen-code/drops_reasoning",
    }
    assert results["langgraph/two_roles"].problems == (
        "step work: hangs on plan, not nothing",
        "step replan: hangs on work, not plan",
        "step work_on: hangs on replan, not work",
    )
    assert results["mini-swe-agent/marks_a_retry"].problems == (
        "PlayError: step again: another answer than first got",
    )


def test_the_command_loads_an_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    adapter = "tests.conformance.one_chain_gateway:OneChainGateway"
    lines: list[str] = []
    options = Options("gateway", "", adapter=adapter, cases=("openhands/continues",))
    assert run(options, lines.append) == 0
    assert lines == ["ok    gateway/openhands/continues", "1 passed, 0 failed, 0 skipped"]
    options = Options("gateway", "", adapter=adapter, cases=("langgraph/two_roles",))
    assert run(options, lines.append) == FAILED
    assert "      step work: hangs on plan, not nothing" in lines
    for wrong in ("", "tests.nowhere:Adapter", "tests.conformance.one_chain_gateway:Nothing", "no"):
        assert run(Options("gateway", "", adapter=wrong), lines.append) == USAGE
        assert "adapter" in capsys.readouterr().err
