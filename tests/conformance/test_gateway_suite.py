"""Our gateway goes through its suite, and the suite finds a gateway that is wrong."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gymmesh_cli.main import cli
from gymmesh_conformance.command import FAILED, USAGE, Options, run
from gymmesh_conformance.gateway import (
    CaughtCall,
    Script,
    run_gateway_suite,
    scripted_endpoint,
    select_gateway_cases,
)
from gymmesh_conformance.gateway.playing import SUITE, TOKENS
from gymmesh_conformance.reports import as_junit
from gymmesh_conformance.runner import CaseResult
from tests.conformance.one_chain_gateway import OneChainGateway, TokenChainGateway
from tests.conformance.our_gateway import OurGateway, OurRollout

NAMES = [f"{program.program}/{case.name}" for program, case in select_gateway_cases(())]


@pytest.mark.parametrize("name", NAMES)
async def test_our_gateway_conforms(name: str) -> None:
    results = await run_gateway_suite(OurGateway(), only=[name])
    assert [result.suite for result in results] == [SUITE, TOKENS]
    for result in results:
        assert result.problems == ()
        assert result.outcome == "passed"


class _Kept(OurGateway):
    """Keeps what was captured last."""

    calls: Sequence[CaughtCall] = ()

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[OurRollout]:
        async with super().rollout(script, program) as rollout:
            yield rollout
            self.calls = await rollout.finish()


async def test_our_gateway_says_more_than_a_gateway_must() -> None:
    cases = [
        (program, case, place)
        for program, case in select_gateway_cases(())
        for place, step in enumerate(one for one in case.steps if not one.expect.repeats)
        if step.expect.may_hang_on_nothing
    ]
    assert cases
    gateway = _Kept()
    for program, case, place in cases:
        await run_gateway_suite(gateway, only=[f"{program.program}/{case.name}"])
        assert gateway.calls[place].parent is not None, (program.program, case.name, place)


def test_ten_programs_are_recorded() -> None:
    assert len({name.partition("/")[0] for name in NAMES}) == 10


async def test_a_gateway_with_one_chain_is_found_out() -> None:
    found = await run_gateway_suite(OneChainGateway())
    tokens = [result for result in found if result.suite == TOKENS]
    assert {result.outcome for result in tokens} == {"not shown"}
    assert {result.lacks for result in tokens} == {
        "the gateway gives no training samples",
        "the session did not come to its end",
    }
    results = {result.name: result for result in found if result.suite == SUITE}
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


async def test_a_sample_for_each_call_is_right_until_a_program_spells_anew() -> None:
    cases = ["langgraph/asks_twice", "openhands/continues", "mini-swe-agent/marks_a_retry"]
    results = await run_gateway_suite(TokenChainGateway(), only=cases)
    tokens = {result.name: result for result in results if result.suite == TOKENS}
    # The parent of a call is wrong there, so that its prompt cannot begin with the parent's.
    assert tokens["langgraph/asks_twice"].problems == (
        "step two: its prompt does not begin with the tokens of the call before it",
    )
    # Arguments with other spaces and an answer without its reasoning are other tokens.
    assert tokens["openhands/continues"].problems == (
        "step second: its prompt does not begin with the tokens of the call before it",
        "step third: its prompt does not begin with the tokens of the call before it",
    )
    assert tokens["mini-swe-agent/marks_a_retry"].outcome == "not shown"


class _Refuses:
    """Has no address that programs know."""

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[OurRollout]:
        async with scripted_endpoint(script) as url:
            yield OurRollout(f"{url}/nowhere", "key")


async def test_what_a_gateway_refuses_is_said_even_where_it_would_be_cut() -> None:
    case = "qwen-code/repeats_after_a_cut_stream"
    calls, tokens = await run_gateway_suite(_Refuses(), only=[case])
    assert calls.problems == ("PlayError: step cut: 404 404: Not Found",)
    assert (tokens.outcome, tokens.lacks) == ("not shown", "the session did not come to its end")


def test_what_is_not_shown_is_no_pass_for_continuous_integration() -> None:
    result = CaseResult(TOKENS, "codex/continues", "rule", "not shown", lacks="no samples")
    (suite,) = ElementTree.fromstring(as_junit([result]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "0", "1")
    (skipped,) = suite.iter("skipped")
    assert skipped.get("message") == "not shown: no samples"


def test_the_command_loads_an_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    adapter = "tests.conformance.one_chain_gateway:OneChainGateway"
    lines: list[str] = []
    options = Options("gateway", "", adapter=adapter, cases=("openhands/continues",))
    assert run(options, lines.append) == 0
    assert lines == [
        "ok    gateway/openhands/continues",
        "----  gateway-tokens/openhands/continues"
        "  (not shown: the gateway gives no training samples)",
        "1 passed, 0 failed, 0 skipped, 1 not shown",
    ]
    options = Options("gateway", "", adapter=adapter, cases=("langgraph/two_roles",))
    assert run(options, lines.append) == FAILED
    assert "      step work: hangs on plan, not nothing" in lines
    for wrong in ("", "tests.nowhere:Adapter", "tests.conformance.one_chain_gateway:Nothing", "no"):
        assert run(Options("gateway", "", adapter=wrong), lines.append) == USAGE
        assert "adapter" in capsys.readouterr().err


CHAT_ONLY = """
import one_file_beside

from contextlib import asynccontextmanager


class ChatAdapter:
    apis = APIS

    def __init__(self, target):
        pass

    @asynccontextmanager
    async def rollout(self, script, program):
        raise OSError("this gateway is not there")
        yield
"""


@pytest.mark.parametrize(
    "adapter", ["chat_gateway:ChatAdapter", "near/chat_gateway.py:ChatAdapter"]
)
def test_an_adapter_of_the_working_directory_says_which_apis_there_are(
    adapter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # What a console script has, whatever this test's own process looks in.
    monkeypatch.setattr("sys.path", [one for one in sys.path if one])
    for name in ("chat_gateway", "one_file_beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    folder = tmp_path / ("near" if "near" in adapter else "")
    folder.mkdir(exist_ok=True)
    (folder / "one_file_beside.py").touch()
    (folder / "chat_gateway.py").write_text(CHAT_ONLY.replace("APIS", "['chat']"))
    cases = ["--case", "claude-code/asks_beside", "--case", "openhands/continues"]
    with pytest.raises(SystemExit) as ended:
        cli(["conformance", "--service", "gateway", "--adapter", adapter, *cases])
    assert ended.value.code == FAILED
    lines = capsys.readouterr().out.splitlines()
    assert "skip  gateway/claude-code/asks_beside  (needs the API 'messages')" in lines
    assert "skip  gateway-tokens/claude-code/asks_beside  (needs the API 'messages')" in lines
    assert lines[-1] == "0 passed, 1 failed, 2 skipped, 1 not shown"


async def test_an_api_that_there_is_not_is_said() -> None:
    class Wrong(OneChainGateway):
        apis = ("chats",)

    with pytest.raises(LookupError, match="list some of chat, responses, messages, gemini"):
        await run_gateway_suite(Wrong(), only=["openhands/continues"])
