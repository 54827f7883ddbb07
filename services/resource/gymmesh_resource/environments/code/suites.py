"""The tests of a task row. Pure.

Two kinds of rows are known:
- NeMo Gym's code_gen: `verifier_metadata.unit_tests` with `inputs` and `outputs` (lists of text)
  and, for a function, `fn_name`. With `fn_name`, inputs are JSON values, one per line, and outputs
  are JSON. `unit_tests.packed` holds inputs and outputs as zlib-compressed JSON in base64.
- HumanEval's: `prompt`, `test` (defines `check(candidate)`) and `entry_point`.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gymmesh_resource.environments.code.extract import defines
from gymmesh_resource.environments.code.frames import OUTPUT_LIMIT
from gymmesh_resource.errors import TaskInvalid

T = TypeVar("T")
_UNPACKED_LIMIT = 256 * 1024 * 1024
# Characters of one input: as bytes, no more than the largest file of a program.
INPUT_LIMIT = 4 * 1024 * 1024
_NOTHING = "a program that does nothing would pass; add a test with another output"
_TESTS_ELSEWHERE = (
    "a task whose tests are not in the row. If the task has a single program, put the program's"
    " tests under verifier_metadata.unit_tests"
)
# Where a row says in what language programs are written; some say there what people speak.
_LANGUAGE_KEYS = ("language", "lang", "programming_language")
_OTHER_LANGUAGES = frozenset(
    ("c", "cpp", "c++", "c#", "csharp", "java", "javascript", "js", "typescript", "ts", "go",
     "golang", "rust", "ruby", "php", "kotlin", "swift", "scala", "perl", "lua", "julia",
     "haskell", "bash", "shell", "sql", "verilog", "systemverilog")
)  # fmt: skip
# Keys of rows that other verifiers judge, and what to do about them.
_FOREIGN = {
    "input_output": "has tests in a form that this environment cannot read; put the inputs and"
    " outputs of the tests under verifier_metadata.unit_tests",
    "test_list": "has separate assert statements; put the statements into a function"
    " check(candidate) under the key 'test', and add the keys 'prompt' and 'entry_point'",
    "competition_id": f"belongs to {_TESTS_ELSEWHERE}",
    "sub_steps": "has several programs that are judged together, which is not supported;"
    " write one row for each program, with the keys 'prompt', 'test' and 'entry_point'",
    "instance_id": f"belongs to {_TESTS_ELSEWHERE}",
    "instance": f"belongs to {_TESTS_ELSEWHERE}",
}


@dataclass(frozen=True, slots=True)
class StdioSuite:
    """A program that must write the expected output for each input."""

    cases: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class CallSuite:
    """A function that must return the expected value for each list of arguments.

    Both are JSON texts; the arguments have one value a line.
    """

    entry: str
    cases: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class CheckSuite:
    """A function that must pass the task's own test code."""

    prompt: str
    test: str
    entry: str


Suite = StdioSuite | CallSuite | CheckSuite


def suite_of(payload: Mapping[str, Any]) -> Suite:
    """The tests of a row. Raises `TaskInvalid`, which names the key to correct."""
    _check_language(payload, "")
    if "verifier_metadata" in payload:
        return _unit_tests(_value(payload, "verifier_metadata", "", dict, "an object"))
    if "entry_point" in payload or "test" in payload:
        return _check_suite(payload)
    for key, problem in _FOREIGN.items():
        if key in payload:
            raise TaskInvalid(key, problem)
    raise TaskInvalid(
        "verifier_metadata",
        "is missing; put the tests under verifier_metadata.unit_tests (inputs and outputs), or"
        " write the keys of HumanEval: 'prompt', 'test' and 'entry_point'",
    )


def _check_suite(payload: Mapping[str, Any]) -> CheckSuite:
    keys = ("prompt", "test", "entry_point")
    prompt, test, entry = (_value(payload, key, "", str, "text") for key in keys)
    if not entry.isidentifier():
        raise TaskInvalid("entry_point", "must be the name of a function")
    for key, source in (("prompt", prompt), ("test", test)):
        try:
            compile(source, key, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise TaskInvalid(key, f"is not Python: {error}") from None
    if not defines(test, "check"):
        raise TaskInvalid(
            "test",
            "does not define the function check(candidate), where candidate is the program's "
            "function. Rewrite other tests, such as those of unittest or pytest, as this function",
        )
    return CheckSuite(prompt, test, entry)


def _unit_tests(metadata: Mapping[str, Any]) -> StdioSuite | CallSuite:
    where = "verifier_metadata."
    _check_language(metadata, where)
    if "unit_tests" not in metadata:
        raise TaskInvalid(
            where + "unit_tests",
            "is missing; write the tests as 'inputs' and 'outputs'. Rows without tests, such as "
            "those of bigcodebench, evalplus, code_fim or deepswe, can't be judged",
        )
    tests: Mapping[str, Any] = _value(metadata, "unit_tests", where, dict, "an object")
    where += "unit_tests."
    if "packed" in tests:
        packed = _value(tests, "packed", where, str, "text")
        tests = {**_unpack(packed, where + "packed"), **tests}
    inputs, outputs = _texts(tests, "inputs", where), _texts(tests, "outputs", where)
    if not inputs:
        raise TaskInvalid(where + "inputs", "is empty; write at least one test")
    if len(inputs) != len(outputs):
        raise TaskInvalid(
            where + "outputs",
            f"must have as many entries as 'inputs': {len(inputs)}, not {len(outputs)}",
        )
    _check_sizes(inputs, outputs, where)
    if tests.get("fn_name") is None:
        if not any(text.strip() for text in outputs):
            raise TaskInvalid(where + "outputs", f"are all empty: {_NOTHING}")
        return StdioSuite(list(zip(inputs, outputs, strict=True)))
    return _call_suite(_value(tests, "fn_name", where, str, "text"), inputs, outputs, where)


def _call_suite(name: str, inputs: list[str], outputs: list[str], where: str) -> CallSuite:
    if not name.isidentifier():
        raise TaskInvalid(where + "fn_name", "must be the name of a function")
    cases = [(text.rstrip("\n"), output) for text, output in zip(inputs, outputs, strict=True)]
    values = []
    for index, (arguments, output) in enumerate(cases):
        for line in arguments.split("\n"):
            _json(line, f"{where}inputs[{index}]")
        values.append(_json(output, f"{where}outputs[{index}]"))
    if all(value is None for value in values):
        raise TaskInvalid(where + "outputs", f"are all null: {_NOTHING}")
    return CallSuite(name, cases)


def _check_sizes(inputs: list[str], outputs: list[str], where: str) -> None:
    for index, text in enumerate(inputs):
        if len(text) > INPUT_LIMIT:
            raise TaskInvalid(f"{where}inputs[{index}]", _too_long(INPUT_LIMIT, "characters"))
    for index, text in enumerate(outputs):
        if len(text.encode("utf-8", "surrogatepass")) > OUTPUT_LIMIT:
            raise TaskInvalid(f"{where}outputs[{index}]", _too_long(OUTPUT_LIMIT, "bytes"))


def _too_long(limit: int, unit: str) -> str:
    return f"is longer than {limit} {unit}, the limit of this environment; remove this test"


def _check_language(holder: Mapping[str, Any], where: str) -> None:
    for key in _LANGUAGE_KEYS:
        language = holder.get(key)
        if isinstance(language, str) and language.lower() in _OTHER_LANGUAGES:
            raise TaskInvalid(
                where + key,
                f"is {language}, but this environment runs only Python; remove this row",
            )


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise TaskInvalid(
            where,
            "is not JSON; if the row has 'fn_name', each line of an input and each output must be "
            "JSON",
        ) from None


def _unpack(packed: str, where: str) -> Mapping[str, Any]:
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(packed, validate=True), _UNPACKED_LIMIT)
        if not stream.eof:
            raise TaskInvalid(where, "is cut off or larger than 256 MiB when unpacked")
        value = json.loads(data)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise TaskInvalid(where, "is not zlib-compressed JSON in base64") from None
    if not isinstance(value, dict):
        raise TaskInvalid(where, "must be an object with 'inputs' and 'outputs'")
    return value


def _value(holder: Mapping[str, Any], key: str, where: str, kind: type[T], form: str) -> T:
    value = holder.get(key)
    if not isinstance(value, kind):
        raise TaskInvalid(where + key, "is missing" if value is None else f"must be {form}")
    return value


def _texts(holder: Mapping[str, Any], key: str, where: str) -> list[str]:
    values: list[Any] = _value(holder, key, where, list, "a list of texts")
    if not all(isinstance(part, str) for part in values):
        raise TaskInvalid(where + key, "must be a list of texts")
    return values
