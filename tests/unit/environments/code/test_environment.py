"""The environment as it is served: tools, options, rows that are refused."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.code.compare import same_output, same_value
from gymmesh_resource.environments.code.environment import CodeEnvironment
from gymmesh_resource.environments.code.frames import decode, encode
from gymmesh_resource.environments.code.suites import CallSuite, StdioSuite, suite_of
from gymmesh_resource.errors import TaskInvalid
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError
from tests.unit.resource.served import served, task
from tests.unit.sandbox.machine import descendants, left_behind, require_bubblewrap

require_bubblewrap()

pytestmark = pytest.mark.long

TESTS = {"unit_tests": {"inputs": ["2\n"], "outputs": ["4\n"]}}
ROW = task("t", verifier_metadata=TESTS)


async def test_tools_and_verdict() -> None:
    before = descendants()
    environment = CodeEnvironment(tool_run_s=60.0, test_timeout_s=60.0)
    async with served(environment, tool_timeout_s=90.0) as mesh:
        session_id = (await mesh.create(ROW)).session_id
        out = await mesh.call(session_id, "python", {"code": "print(6 * 7)"})
        assert out.text == b"42"
        out = await mesh.call(session_id, "python", {"code": "1 / 0"})
        assert b"[stderr]" in out.text
        assert b"ZeroDivisionError" in out.text
        assert out.text.endswith(b"[exit code 1]")
        out = await mesh.call(session_id, "shell", {"command": "echo a; exit 3"})
        assert out.text == b"a\n[exit code 3]"
        out = await mesh.call(session_id, "shell", {"command": "yes"})
        assert out.text.endswith(b"[killed: more than 32768 bytes of output]")
        answer = [new_message("assistant", "```python\nprint(2 * int(input()))\n```")]
        verification = await mesh.verify(session_id, ROW, answer)
    assert verification.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    assert verification.reward == 1.0
    assert [stage.name for stage in verification.stages] == ["tests"]
    assert not await left_behind(before)


async def test_a_tool_s_program_that_does_not_end() -> None:
    async with served(CodeEnvironment(tool_run_s=1.0)) as mesh:
        session_id = (await mesh.create(ROW)).session_id
        out = await mesh.call(session_id, "shell", {"command": "sleep 600"})
    assert out.text == b"[killed after 1 s]"


async def test_sessions_side_by_side_while_one_is_hostile() -> None:
    async with served(CodeEnvironment(tool_run_s=12.0), tool_timeout_s=120.0) as mesh:
        hostile = (await mesh.create(ROW)).session_id
        other = (await mesh.create(ROW)).session_id
        bomb = {"code": "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"}
        bombing = asyncio.create_task(mesh.call(hostile, "python", bomb))
        for number in range(5):
            out = await mesh.call(other, "shell", {"command": f"echo {number}"})
            assert out.text == str(number).encode()
            assert number or not bombing.done()
        await bombing


async def test_no_sandbox_and_no_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"bubblewrap.*allow_unsandboxed_code_that_can_harm"):
        async with served(CodeEnvironment()):
            pass


async def test_no_sandbox_but_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    environment = CodeEnvironment(allow_unsandboxed_code_that_can_harm_this_machine=True)
    async with served(environment) as mesh:
        session_id = (await mesh.create(ROW)).session_id
        out = await mesh.call(session_id, "python", {"code": "print(1)"})
        assert out.text == b"1"
        answer = [new_message("assistant", "```\nprint(2 * int(input()))\n```")]
        assert (await mesh.verify(session_id, ROW, answer)).reward == 1.0


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "verifier_metadata"),
        ({"verifier_metadata": []}, "verifier_metadata"),
        ({"verifier_metadata": {}}, "verifier_metadata.unit_tests"),
        ({"verifier_metadata": {"unit_tests": {}}}, "verifier_metadata.unit_tests.inputs"),
        ({"inputs": [], "outputs": []}, "verifier_metadata.unit_tests.inputs"),
        ({"inputs": ["a"], "outputs": []}, "verifier_metadata.unit_tests.outputs"),
        ({"inputs": [1], "outputs": ["1"]}, "verifier_metadata.unit_tests.inputs"),
        ({"inputs": ["1"], "outputs": "1"}, "verifier_metadata.unit_tests.outputs"),
        (
            {"inputs": ["1"], "outputs": ["1"], "fn_name": "a b"},
            "verifier_metadata.unit_tests.fn_name",
        ),
        (
            {"inputs": ["x"], "outputs": ["1"], "fn_name": "f"},
            "verifier_metadata.unit_tests.inputs[0]",
        ),
        (
            {"inputs": ["1"], "outputs": ["x"], "fn_name": "f"},
            "verifier_metadata.unit_tests.outputs[0]",
        ),
        ({"packed": "%"}, "verifier_metadata.unit_tests.packed"),
        ({"inputs": ["1"], "outputs": [" \n"]}, "verifier_metadata.unit_tests.outputs"),
        (
            {"inputs": ["1"], "outputs": ["null"], "fn_name": "f"},
            "verifier_metadata.unit_tests.outputs",
        ),
        (
            {"inputs": ["1"], "outputs": ["x" * (2**21 + 1)]},
            "verifier_metadata.unit_tests.outputs[0]",
        ),
        (
            {"inputs": ["x" * (2**22 + 1)], "outputs": ["1"]},
            "verifier_metadata.unit_tests.inputs[0]",
        ),
        ({"test": "x"}, "prompt"),
        ({"prompt": "", "test": "def test_a(): pass", "entry_point": "f"}, "test"),
        ({"prompt": "", "test": "def check(f): f(1)", "entry_point": "f", "lang": "cpp"}, "lang"),
        # Shapes of rows of other verifiers.
        (
            {
                "verifier_metadata": {
                    "task_id": "A/1",
                    "split": "hard",
                    "test": "",
                    "entry_point": "",
                }
            },
            "verifier_metadata.unit_tests",
        ),
        ({"verifier_metadata": {"task_id": "A/1"}}, "verifier_metadata.unit_tests"),
        (
            {"verifier_metadata": {"unit_tests": {}, "language": "C++"}},
            "verifier_metadata.language",
        ),
        ({"competition_id": "c", "problem_id": "p", "subtask": "s"}, "competition_id"),
        ({"problem_id": "1", "sub_steps": [{"test_cases": []}]}, "sub_steps"),
        ({"instance_id": "a__b-1", "patch": "", "FAIL_TO_PASS": "[]"}, "instance_id"),
        ({"instance": {"patch": ""}, "metadata": {}}, "instance"),
        ({"input_output": "{}", "solutions": "[]"}, "input_output"),
        ({"test_list": ["assert f(1) == 2"], "text": "", "code": ""}, "test_list"),
        ({"expected_result": "32", "id": 0}, "verifier_metadata"),
        ({"prompt": "", "test": "", "entry_point": ""}, "entry_point"),
        ({"prompt": "def", "test": "", "entry_point": "f"}, "prompt"),
        ({"prompt": "", "test": "(", "entry_point": "f"}, "test"),
    ],
)
def test_rows_that_are_refused(payload: dict[str, Any], field: str) -> None:
    if payload and {"inputs", "packed"} & set(payload):
        payload = {"verifier_metadata": {"unit_tests": payload}}
    with pytest.raises(TaskInvalid) as caught:
        suite_of(payload)
    assert caught.value.field == field


def test_packed_rows() -> None:
    content = json.dumps({"inputs": ["[1]\n2"], "outputs": ["3"]}).encode()
    packed = base64.b64encode(zlib.compress(content)).decode()
    rows = {"verifier_metadata": {"unit_tests": {"packed": packed, "fn_name": "f"}}}
    assert suite_of(rows) == CallSuite("f", [("[1]\n2", "3")])
    rows["verifier_metadata"]["unit_tests"]["fn_name"] = None  # type: ignore[assignment]
    assert suite_of(rows) == StdioSuite([("[1]\n2", "3")])


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
@settings(max_examples=100)
def test_values_cross_the_wall_whole(value: Any) -> None:
    there = json.loads(json.dumps(encode(value)))
    assert repr(decode(there)) == repr(value)


@pytest.mark.parametrize("value", [{1, 2}, frozenset({"a"}), set(), 1j, [{(1, 2): {3}}]])
def test_sets_cross_the_wall(value: Any) -> None:
    there = decode(json.loads(json.dumps(encode(value))))
    assert there == value
    assert type(there) is type(value)


@given(st.text(), st.text())
def test_outputs_agree_with_themselves_and_both_ways(left: str, right: str) -> None:
    assert same_output(left, left)
    assert same_output(left, right) == same_output(right, left)


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("1.50 2", "1.5 2.0", True),
        ("1e1", "10", True),
        ("-0.0", "0", True),
        ("1.0000001", "1", False),
        ("0.1", "0.1000000000000000055511151231257827", False),
        ("5", "Infinity", False),
        ("inf", "Infinity", True),
        ("nan", "NaN", False),
        ("sNaN", "1", False),
        ("1e999999999999999999999", "1", False),
        ("", "0", False),
        ("\n\n", "", True),
        ("1 2", "1", False),
        ("1 x", "1.0 x", False),
    ],
)
def test_outputs(actual: str, expected: str, same: bool) -> None:
    assert same_output(actual, expected) is same


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ((1, 2), [1, 2], True),
        ([(1, 2)], [[1, 2]], True),
        ({1: 2}, {"1": 2}, True),
        (True, 1, True),
        ("3", 3, True),
        (1.0000001, 1, True),
        (1.001, 1, False),
        (float("nan"), 1, False),
        ({1}, [1], False),
        (b"1", "2", False),
        (None, 0, False),
        (10**400, 1.5, False),
        (10**400, 10**400, True),
        (100001, 100000, False),
        ("100001", 100000, False),
        (b"100001", 100000, False),
        ("1e5", 100000, True),
        (100000.5, 100000, True),
        (5, float("inf"), False),
        (float("inf"), float("inf"), True),
        ("inf", float("inf"), True),
        (float("-inf"), float("inf"), False),
        (1e308, float("inf"), False),
        (5, "infinity", False),
        (5, float("nan"), False),
        (5, "nan", False),
        (float("nan"), float("nan"), True),
        (-0.0, 0.0, True),
        (1e300, 1e300 * (1 + 1e-6), True),
        ([], None, False),
        (False, None, False),
        ("", 0, False),
        (None, "null", False),
        ([float("inf")], [1.0], False),
    ],
)
def test_values_as_nemo_gym_compares_them(actual: Any, expected: Any, same: bool) -> None:
    assert same_value(actual, expected, nemo=True) is same
    assert same or not same_value(actual, expected)  # the usual rules accept no more
