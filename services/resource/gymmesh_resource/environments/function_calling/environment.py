"""Calls of functions that the task defines, compared with the expected calls.

Task rows have `expected_answers` (several calls, as NeMo Gym's xlam_fc) or `expected_action`
(calls or a message, as NeMo Gym's single-step comparison). The functions are in the row's `tools`
and never run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolCall, Verdict
from gymmesh_resource.environments.function_calling.comparison import (
    Likeness,
    are_near,
    equal,
    equal_text,
)
from gymmesh_resource.environments.function_calling.verdict import (
    NamedCall,
    Rules,
    judge_action,
    judge_calls,
    read_action,
    read_expected,
)
from gymmesh_resource.expected import Expected
from gymmesh_responses import CodecError, loads

# Calls that are kept as evidence, and characters and brackets of their arguments.
_SHOWN = 20
_LONGEST = 2_000
_BRACKETS = 100
# Keys of rows whose calls NeMo Gym compares by other rules than any of these.
_FOREIGN = {"harness": "terminal_multi_harness", "pivot_tags": "swe_pivot"}
_ANSWER = "The call was received. There is no result to work with."


class FunctionCallingEnvironment(Environment[None]):
    """Calls of the task's own functions, judged by name and arguments. No function runs.

    The reward is 1.0 if the model makes the expected calls, otherwise 0.0.
    """

    version = "3"
    references: ClassVar[tuple[str, ...]] = ("nemo",)
    examples = "tasks.jsonl"

    def __init__(
        self,
        *,
        end: Literal["model", "first_calls"] = "model",
        tool_answer: str = _ANSWER,
        extra_arguments: Literal["allowed", "refused"] | None = None,
        call_order: Literal["free", "kept"] = "free",
        fill_defaults: bool | None = None,
        word_similarity: Annotated[float, msgspec.Meta(ge=0, le=0.5)] | None = None,
        float_tolerance: Annotated[float, msgspec.Meta(ge=0)] | None = None,
        ignored_arguments: Sequence[str] = (),
    ) -> None:
        """Options.

        end: what ends an episode: an answer without calls (`model`), or the model's first calls.
            With `expected_action` the first calls always end the episode.
        tool_answer: the answer to every call that a row's `tool_answers` does not answer.
        extra_arguments: whether calls may have arguments that are not expected. Default: refused;
            with `compat: nemo`, allowed in `expected_answers`.
        call_order: whether calls may be in any order (`free`) or must be in the expected order.
        fill_defaults: whether an omitted argument has the default of the function's schema.
            Default: true; with `compat: nemo`, false.
        word_similarity: only with `compat: nemo`: the smallest share of common words in texts of
            `expected_action`. Default: 0.1.
        float_tolerance: two numbers of `expected_action` may differ by less than this value if
            one is a float. Default: none; with `compat: nemo`, 1e-6.
        ignored_arguments: keys of `expected_action` whose values are not compared.
        """
        self._end = end
        self._answer = tool_answer
        self._extra = extra_arguments
        self._in_order = call_order == "kept"
        self._fill = fill_defaults
        self._word_similarity = word_similarity
        self._float_tolerance = float_tolerance
        self._ignored = frozenset(ignored_arguments)

    def check_task(self, task: Task) -> None:
        """The row must have a well-formed `expected_answers` or `expected_action`, and its `tools`
        must have every function that these call.
        """
        for key, server in _FOREIGN.items():
            if key in task.payload:
                raise TaskInvalid(
                    key,
                    f"marks a row of NeMo Gym's {server}, which compares calls by other rules. Run "
                    "the row on that server in the environment nemo_gym, or remove the key",
                )
        _, field, expected = _expectation(task)
        _callable(task, expected, field)
        answers = task.payload.get("tool_answers", {})
        if not isinstance(answers, dict) or not all(isinstance(v, str) for v in answers.values()):
            raise TaskInvalid("tool_answers", "must be an object that maps function names to texts")
        _free_text(task)

    async def call_other(self, session: Session[None], name: str, arguments: dict[str, Any]) -> str:
        """Answer a call of one of the task's functions."""
        if self._end == "first_calls" or "expected_answers" not in session.task.payload:
            session.finish()
        answers: Mapping[str, str] = session.task.payload.get("tool_answers", {})
        return answers.get(name, self._answer)

    def expected(self, task: Task) -> Expected:
        """The row's calls; a message if it expects no call."""
        _, _, calls = _expectation(task)
        if not calls:
            return Expected("There is nothing to call for that.")
        return Expected(kind="calls", calls=[(one.name, one.arguments or {}) for one in calls])

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Compare the model's calls with the expected calls."""
        task = rollout.task
        is_nemo = bool(self.compat_of(task))
        made = [_made(call, once=not is_nemo) for call in rollout.tool_calls]
        said = any(map(str.strip, rollout.texts))
        several, _, expected = _expectation(task)
        rules = self._nemo_rules(task, several) if is_nemo else self._rules(task, several)
        predicted = [_shown(call) for call in rollout.tool_calls[:_SHOWN]]
        if not several:
            action = judge_action(expected, made, said=said, rules=rules)
            evidence: dict[str, Any] = {"category": action.category, "predicted_calls": predicted}
            return Verdict(action.reward, evidence=evidence, explanation=action.category)
        calls = judge_calls(expected, made, rules, said=said or is_nemo)
        evidence = {
            "num_expected": calls.num_expected,
            "num_predicted": calls.num_predicted,
            "num_correct": calls.num_correct,
            "predicted_calls": predicted,
        }
        explanation = calls.problem or "the expected calls"
        return Verdict(calls.reward, evidence=evidence, explanation=explanation)

    def _rules(self, task: Task, several: bool) -> Rules:
        tolerance = 0.0 if several else self._float_tolerance or 0.0
        return Rules(
            extra_arguments=self._extra or "refused",
            in_order=several and self._in_order,
            defaults={} if self._fill is False else _schema_defaults(task),
            same=_near_or_equal(tolerance) if tolerance else equal_text,
            ignored=() if several else self._ignored,
            free_text=_free_text(task),
        )

    def _nemo_rules(self, task: Task, several: bool) -> Rules:
        """NeMo Gym's own rules, right or wrong."""
        if several:
            return Rules(
                extra_arguments=self._extra or "allowed",
                in_order=self._in_order,
                defaults=_schema_defaults(task) if self._fill else {},
                same=equal,
            )
        least, tolerance = self._word_similarity, self._float_tolerance
        likeness = Likeness(
            0.1 if least is None else least, 1e-6 if tolerance is None else tolerance
        )
        return Rules(same=likeness, ignored=self._ignored)


def _near_or_equal(tolerance: float) -> Callable[[Any, Any], bool]:
    return lambda left, right: equal_text(left, right) or are_near(left, right, tolerance)


def _free_text(task: Task) -> frozenset[str]:
    """The arguments in which a row lets sentences be worded differently."""
    names = task.payload.get("free_text_arguments", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TaskInvalid("free_text_arguments", "must be a list of argument names")
    return frozenset(names)


def _expectation(task: Task) -> tuple[bool, str, list[NamedCall]]:
    """Whether the calls are compared exactly, the key that they stand under, and the calls."""
    payload = task.payload
    if "expected_answers" in payload:
        return True, "expected_answers", read_expected(payload["expected_answers"])
    if "expected_action" in payload:
        return False, "expected_action", read_action(payload["expected_action"])
    raise TaskInvalid(
        "expected_answers",
        "is missing, and expected_action is also missing; write one of these two keys",
    )


def _callable(task: Task, expected: Sequence[NamedCall], field: str) -> None:
    """Raise `TaskInvalid` for an expected call of a function that the model does not have."""
    tools = task.message.params.tools
    if not all(tool.HasField("function") for tool in tools):
        return
    names = {tool.function.name for tool in tools}
    missing = next((call.name for call in expected if call.name not in names), None)
    if missing is not None:
        raise TaskInvalid(
            field,
            f"calls the function {missing!r}, which is not in responses_create_params.tools; add "
            "the function to these tools",
        )


def _shown(call: ToolCall) -> dict[str, Any]:
    """A call as evidence; long or deep arguments as text, cut."""
    raw = call.arguments_json
    if len(raw) <= _LONGEST and raw.count(b"[") + raw.count(b"{") <= _BRACKETS:
        return {"name": call.name[:_LONGEST], "arguments": _made(call).arguments}
    text = raw[:_LONGEST].decode(errors="replace")
    return {"name": call.name[:_LONGEST], "arguments": text}


def _made(call: ToolCall, *, once: bool = False) -> NamedCall:
    """A call; without arguments where they are not JSON, or `once` is set and a key comes twice."""
    # Some models write nothing at all where there are no arguments.
    arguments = call.arguments if call.arguments_json.strip() else {}
    if once and arguments and _repeats_a_key(call.arguments_json):
        arguments = None
    return NamedCall(call.name, arguments)


def _repeats_a_key(raw: bytes) -> bool:
    """Whether an object has a key twice: readers disagree on which of its values counts."""
    found = False

    def note(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({name for name, _ in pairs}) < len(pairs)

    try:
        json.loads(raw, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return False  # the codec read it: a number or a depth that this reader does not like
    return found


def _schema_defaults(task: Task) -> dict[str, dict[str, Any]]:
    """The defaults of parameters by function, from the task's own tools."""
    found: dict[str, dict[str, Any]] = {}
    for tool in task.message.params.tools:
        try:
            schema = loads(tool.function.parameters_json or b"{}")
        except CodecError:
            continue
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(properties, dict):
            found[tool.function.name] = {
                name: part["default"]
                for name, part in properties.items()
                if isinstance(part, dict) and "default" in part
            }
    return found
