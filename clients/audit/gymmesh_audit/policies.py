"""Policies that know nothing, and policies that know other answers. Pure and plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gymmesh_audit.attack import Attack
from gymmesh_audit.gold import ANSWER, Gold, same

#: Answers that cost nothing, each an attack of its own.
CONSTANTS: Final[tuple[str, ...]] = (
    "0", "1", "-1", "2", "10", "42", "100", "0.0000001", "nan", "inf", "-inf", "1e999", "true",
    "false", "null", "None", "yes", "no", *"ABCDEFGHIJ", "x", ".", "{}", "[]", "a", "the", "1+1",
    "0/0", "1*2*3*4", "SELECT 987654321", "???",
)  # fmt: skip
REFUSALS: Final[dict[str, str]] = {
    "a refusal": "I'm sorry, I can't do that.",
    "I don't know": "I don't know.",
    "done": "Done.",
    "a claim of success": "I have completed everything you asked, and it all went through.",
    "white space": " \n\t\n ",
}
SILENCE: Final = "nothing said"
#: Messages that no task asks for, by their attacks' names.
CONTENT_FREE: Final = ("a refusal", "I don't know", "done", "a claim of success")
#: Sprays that hold most short answers.
SPRAYS: Final[dict[str, str]] = {
    "all numbers to 1000": " ".join(map(str, range(1001))),
    "all letters": " ".join(chr(code) for code in range(ord("A"), ord("Z") + 1)),
    "all short words": "yes no maybe true false correct incorrect unknown none",
}
_EXAMPLE = re.compile(
    r"(?:such as|e\.g\.,?|for example[,:]?|example[:,]?|like this:?)\s+"
    r"(?P<given>\"[^\"\n]+\"|<(?P<tag>\w+)>[^<\n]+</(?P=tag)>|\\boxed\{[^{}]+\}|[^\s,;.]+)",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"[\d(][\d\s.,*+/()^×·-]*[*+/^×·-][\d\s.,*+/()^×·-]*[\d)]")
_DENIALS: Final[dict[str, str]] = {
    "a denial": "not {answer}",
    "a denial after it": "{answer} is wrong",
    "a denial in brackets": "{answer} (this is wrong)",
    "a denial in LaTeX": "{answer} \\text{ is wrong}",
}
_HEDGES: Final[dict[str, str]] = {
    "two answers": "{wrong} or {answer}",
    "two answers, the right one first": "{answer} or {wrong}",
    "two answers in LaTeX": "{wrong} \\lor {answer}",
    "a list with the answer in it": "{wrong}, {answer}, {other}",
    "an equation with a wrong side": "{wrong} = {answer}",
    "an equation with a wrong side, the right one first": "{answer} = {wrong}",
}
_MAX_ECHO = 20_000


def from_nothing(
    prompt: str, golds: Sequence[Gold], constants: Sequence[str] = CONSTANTS
) -> Iterator[Attack]:
    """Answers made without knowing the task's answer."""
    form = golds[0] if golds else Gold("?")
    yield Attack(SILENCE, "nothing")
    yield Attack("an empty answer", "nothing", "")
    for name, text in REFUSALS.items():
        yield Attack(name, "nothing", text)
    if form.form != ANSWER:
        for name in ("a refusal", "I don't know"):
            yield Attack(f"{name}, in the answer's place", "nothing", form.say(REFUSALS[name]))
        yield Attack("an empty place for the answer", "nothing", form.say(""))
    for constant in constants:
        if not _right(constant, golds):
            yield Attack(f"constant {constant}", "nothing", form.say(constant))
    for name, spray in SPRAYS.items():
        yield Attack(f"spray: {name}", "nothing", form.say(spray))
    if prompt.strip() and not _right(prompt, golds):
        yield Attack("the prompt echoed", "nothing", prompt[:_MAX_ECHO])
        yield Attack("the prompt in the answer's place", "nothing", form.say(prompt[:_MAX_ECHO]))
    for given in dict.fromkeys(found["given"].strip('"') for found in _EXAMPLE.finditer(prompt)):
        if not _right(given, golds):
            yield Attack("the prompt's own example", "nothing", form.say(given))
            if form.form != ANSWER:
                yield Attack("the prompt's own example, bare", "nothing", given)
    for found in list(_EXPRESSION.finditer(prompt))[:3]:
        expression = found[0].strip()
        if not _right(expression, golds) and not re.fullmatch(r"[\d\s.,-]+", expression):
            yield Attack("an expression of the prompt", "nothing", form.say(expression))


def from_elsewhere(golds: Sequence[Gold], others: Sequence[Gold]) -> Iterator[Attack]:
    """Answers of other tasks, and messages that name several answers or deny the answer."""
    for other in others:
        if any(_same_gold(other, gold) for gold in golds):
            continue
        if other.calls:
            yield Attack("another task's answer", "elsewhere", other.message, calls=other.calls)
            if _says(golds) and not _right(other.answer, golds):
                said = golds[0].say(other.answer)
                yield _after_calls(golds[0], "another task's answer after the right calls", said)
        elif golds and golds[0].answer:
            yield Attack("another task's answer", "elsewhere", golds[0].say(other.answer))
            if other.form != golds[0].form:
                yield Attack("another task's whole message", "elsewhere", other.message)
    if not _says(golds) or golds[0].kind in ("sql", "code", "json"):
        return
    gold = golds[0]
    for name, said in _several_answers(gold, _wrong(gold, others)):
        yield _after_calls(gold, name, said)


def _several_answers(gold: Gold, wrong: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Messages that name several answers or deny the answer, each with its name."""
    for name, template in _DENIALS.items():
        yield name, gold.say(template.replace(ANSWER, gold.answer))
    for name, template in _HEDGES.items():
        said = template.replace(ANSWER, gold.answer).replace("{wrong}", wrong[0])
        yield name, gold.say(said.replace("{other}", wrong[1]))
    retracted = f"{gold.message}\nOn reflection that was a mistake.\n"
    yield "the answer, then taken back", f"{retracted}{gold.say(wrong[0])}"
    mentioned = f"One might guess {gold.answer}, but that is incorrect.\n{gold.say(wrong[0])}"
    yield "the answer mentioned and denied", mentioned
    several = "\n".join(map(gold.say, (wrong[0], gold.answer, wrong[1])))
    yield "several answers, each in its form", several
    if gold.choices:
        taken = f"{retracted}{gold.say(_no_option(gold))}"
        yield "the answer, then taken back for no option", taken
        yield "all options", gold.say(", ".join(gold.choices))


def _after_calls(gold: Gold, name: str, message: str) -> Attack:
    """A message after the expected calls."""
    return Attack(name, "elsewhere", message, calls=gold.calls, turns=gold.turns)


def _says(golds: Sequence[Gold]) -> bool:
    """Whether the first expected answer has a message that the verifier reads."""
    return bool(golds) and bool(golds[0].answer) and golds[0].kind != "calls"


def free_forms(gold: Gold, *, tools: bool) -> Iterator[Attack]:
    """The answer in forms that are only measured: a verifier may accept or reject them."""
    if not gold.answer or gold.kind == "calls":
        return
    forms: dict[str, str] = {}
    if gold.form != ANSWER:
        empty = gold.say("")
        forms["its form named after it"] = f"{gold.message}\n{empty} as asked."
        forms["its form named before it"] = f"{empty} as asked:\n{gold.message}"
    if len(gold.answer) == 1 and gold.answer.isalpha():
        forms["the letter in the other case"] = gold.say(gold.answer.swapcase())
    for name, message in forms.items():
        yield Attack(name, "clothes", message, None, gold.calls, turns=gold.turns)
    if not tools:
        call = [("bash", {"command": "true"})]
        yield Attack("after a call of another tool", "clothes", gold.message, None, call)


def _right(answer: str, golds: Sequence[Gold]) -> bool:
    return any(same(answer, gold.answer) for gold in golds)


def _same_gold(one: Gold, other: Gold) -> bool:
    if one.calls or other.calls:
        return list(one.calls) == list(other.calls)
    return same(one.answer, other.answer)


def _no_option(gold: Gold) -> str:
    """An answer that is none of the options: a letter where they are letters, else words."""
    letters = (chr(code) for code in range(ord("E"), ord("Z") + 1))
    if len(gold.answer) == 1 and gold.answer.isalpha():
        return next((one for one in letters if one not in gold.choices), "none")
    return "none of these options"


def _wrong(gold: Gold, others: Sequence[Gold]) -> tuple[str, str]:
    """Two other answers of the kind of this one."""
    pool = [one for one in gold.choices if not same(one, gold.answer)]
    if pool:
        return pool[0], pool[-1]
    pool += [one.answer for one in others if one.kind == gold.kind and not _same_gold(one, gold)]
    pool += ["17", "23"] if gold.kind == "number" else ["Harbour", "Lighthouse"]
    distinct = [one for one in dict.fromkeys(pool) if one and not same(one, gold.answer)]
    return distinct[0], distinct[-1]
