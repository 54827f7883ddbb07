"""A right answer from the contract, and the messages built from it. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal, get_args

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import CodecError, bytes_to_text, loads, text_of

GoldKind = Literal["text", "number", "choice", "json", "sql", "calls", "code"]
KINDS: Final[tuple[GoldKind, ...]] = get_args(GoldKind)
ANSWER: Final = "{answer}"
_OF_CONTRACT: Final[dict[int, GoldKind]] = {
    verify_pb2.ANSWER_KIND_UNSPECIFIED: "text",
    verify_pb2.ANSWER_KIND_TEXT: "text",
    verify_pb2.ANSWER_KIND_NUMBER: "number",
    verify_pb2.ANSWER_KIND_CHOICE: "choice",
    verify_pb2.ANSWER_KIND_JSON: "json",
    verify_pb2.ANSWER_KIND_SQL: "sql",
    verify_pb2.ANSWER_KIND_CALLS: "calls",
    verify_pb2.ANSWER_KIND_CODE: "code",
}
_POWER = re.compile(
    r"(?P<base>[-+]?[\d.]+)\s*(?:\\times|\\cdot|×|x|\*)\s*10\^\{?(?P<power>-?\d+)\}?"
)
_FRACTION = re.compile(r"(?P<sign>-?)\\[dt]?frac\{(?P<top>-?\d+)\}\{(?P<bottom>\d+)\}")
_FENCE = re.compile(r"^\s*(?:```|~~~)[\w-]*\n(?P<inside>.*?)\n?(?:```|~~~)\s*$", re.DOTALL)
# Words that are one answer for most questions.
_SAME: Final = (frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"}))
_EDGES: Final = " \t\r\n.,;:!?\"'`*$"

MadeCall = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Gold:
    """An answer that earns the best reward.

    answer: the bare answer. form: the message, with `{answer}` in place of the answer. calls: the
    calls before the message. turns: the calls of each further turn, after which the message is sent
    again. reward: the reward that the answer should earn, if the environment declares it.
    """

    answer: str
    kind: GoldKind = "text"
    form: str = ANSWER
    calls: Sequence[MadeCall] = ()
    reward: float | None = None
    choices: Sequence[str] = ()
    turns: Sequence[Sequence[MadeCall]] = ()

    @property
    def message(self) -> str:
        """The message as a policy writes it. Empty if the answer consists of calls alone."""
        return self.say(self.answer) if self.answer else ""

    def say(self, answer: str) -> str:
        """Another answer in the same form."""
        return self.form.replace(ANSWER, answer)

    def with_answer(self, answer: str) -> Gold:
        """The same gold with another bare answer."""
        return replace(self, answer=answer)


def gold_of(expected: verify_pb2.ExpectedAnswer) -> Gold:
    """The gold of an answer of the contract. Raises CodecError if the answer is not text."""
    answer = bytes_to_text(expected.answer)
    message = ""
    groups: list[list[MadeCall]] = [[]]
    for item in expected.items:
        if item.WhichOneof("kind") == "function_call":
            groups[-1].append((item.function_call.name, _arguments(item)))
        elif item.HasField("message"):
            message = text_of(item)
            groups.append([])
    calls, *turns = groups if groups[-1] else groups[:-1] or [[]]
    if not answer:
        answer = message
    before, found, after = message.rpartition(answer) if answer else ("", "", "")
    return Gold(
        answer=answer,
        kind=_OF_CONTRACT.get(expected.kind, "text"),
        form=f"{before}{ANSWER}{after}" if found else ANSWER,
        calls=tuple(calls),
        reward=expected.reward if expected.HasField("reward") else None,
        choices=tuple(expected.choices),
        turns=tuple(map(tuple, turns)),
    )


def gold_under(
    task: rollout_pb2.Task, key: str, *, kind: str = "text", form: str = ANSWER
) -> list[Gold]:
    """The answers under a key of a task's payload. The key may be nested, as in `a.b`. If the value
    is a list, each entry is an answer. Values that are neither text nor number are skipped. Raises
    ValueError for an unknown kind.
    """
    named = next((one for one in KINDS if one == kind), None)
    if named is None:
        raise ValueError(f"unknown kind of answer {kind!r}; use one of {', '.join(KINDS)}")
    value = _under(_payload(task), key)
    values = value if isinstance(value, list) else [value]
    texts = [str(one) for one in values if isinstance(one, str | int | float) and one != ""]
    return [Gold(text, named, form) for text in texts]


@dataclass(frozen=True, slots=True)
class GoldKey:
    """The key of task rows with the right answers, for environments that provide none.

    key, kind, form: as for `gold_under`. source: the name of the tasks, for messages.
    """

    key: str
    kind: str = "text"
    form: str = ANSWER
    source: str = "the environment's example tasks"

    def __call__(self, task: rollout_pb2.Task) -> list[Gold]:
        return gold_under(task, self.key, kind=self.kind, form=self.form)

    def problem(self, tasks: Sequence[rollout_pb2.Task]) -> str:
        """Why no task has an answer under the key. Empty if a task has one, or there is no task."""
        if not tasks or any(map(self, tasks)):
            return ""
        payloads = [_payload(task) for task in tasks]
        values = [_under(one, self.key) for one in payloads]
        found = next((one for one in values if one not in (None, "")), None)
        if found is not None:
            return (
                f"the value of the key {self.key!r} in the rows of {self.source} is "
                f"{'an object' if isinstance(found, dict) else 'a list without texts or numbers'}. "
                "Pass the key of a text, of a number, or of a list of texts or numbers; "
                f"{self.key}.NAME is the key NAME in the object"
            )
        keys = sorted({key for one in payloads for key in one})
        return (
            f"no row of {self.source} has a value under the key {self.key!r}. The rows have the "
            f"keys {', '.join(map(repr, keys)) or '(none)'}"
        )


def _payload(task: rollout_pb2.Task) -> Mapping[str, Any]:
    try:
        payload = loads(task.payload_json or b"{}")
    except CodecError:
        return {}
    return payload if isinstance(payload, dict) else {}


def _under(payload: Mapping[str, Any], key: str) -> Any:
    """The value under a key, which may be nested; None where there is none."""
    value: Any = payload
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def same(first: str, second: str) -> bool:
    """Whether two bare answers mean the same by any usual reading.

    The comparison is broad on purpose: answers that are the same here are not tried as wrong
    answers.
    """
    one, other = _plain(first), _plain(second)
    if one == other or _letters(one) == _letters(other):
        return True
    if any(one in words and other in words for words in _SAME):
        return True
    left, right = number_of(first), number_of(second)
    if left is not None and right is not None:
        return left == right
    return _json(first) is not None and _json(first) == _json(second)


def number_of(text: str) -> Fraction | None:
    """The exact value of a plain number, a power of ten, a percentage or a fraction."""
    bare = unicodedata.normalize("NFKC", text).strip(_EDGES + "{}\\").replace("−", "-")
    bare = bare.replace("\\%", "%").replace("\\!", "").replace("{,}", ",")
    if found := _FRACTION.fullmatch(text.strip(" $")):
        top = int(found["sign"] + found["top"]) if found["top"] else 0
        return Fraction(top, int(found["bottom"])) if int(found["bottom"]) else None
    if found := _POWER.fullmatch(bare.strip("{}")):
        power = int(found["power"])
        return None if abs(power) > 400 else _exact(found["base"], Fraction(10) ** power)
    if bare.endswith("%"):
        return _exact(bare[:-1].strip(), Fraction(1, 100))
    if re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", bare):
        bare = bare.replace(",", "")
    return _exact(bare, Fraction(1))


def _exact(text: str, scale: Fraction) -> Fraction | None:
    exponent = re.search(r"[eE]([-+]?\d+)$", text)
    if exponent and abs(int(exponent[1])) > 400:
        return None
    try:
        return Fraction(text) * scale
    except (ValueError, ZeroDivisionError):
        return None


def _plain(text: str) -> str:
    fenced = _FENCE.match(text)
    inside = fenced["inside"] if fenced else text
    folded = unicodedata.normalize("NFKC", inside).casefold()
    return " ".join(folded.split()).strip(_EDGES)


def _letters(text: str) -> str:
    """Letters and digits alone, where there are any; signs that change a number stay."""
    kept = re.sub(r"(?<!\w)-(?=\d)|[^\w]", lambda match: "-" if match[0] == "-" else "", text)
    return kept or text


def _json(text: str) -> Any:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _arguments(item: responses_pb2.Item) -> Mapping[str, Any]:
    try:
        arguments = loads(item.function_call.arguments or b"{}")
    except CodecError:
        return {}
    return arguments if isinstance(arguments, dict) else {}
