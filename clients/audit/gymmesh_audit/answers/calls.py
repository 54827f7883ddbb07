"""Calls: one argument, name or call changed; the same calls in other order of keys. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gymmesh_audit.answers.json_value import changed_once, swapped_digits
from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import Gold


def nearly(gold: Gold) -> Iterator[Variant]:
    """Calls with one fault."""
    calls = list(gold.calls)
    if not calls:
        return
    name, arguments = calls[-1]
    before = calls[:-1]
    for change, kind in (("one text argument changed", str), ("one number argument changed", int)):
        changed = _changed(arguments, kind)
        if changed is not None:
            yield Variant(change, gold.answer or None, calls=[*before, (name, changed)])
    for change, edit in _EDITS.items():
        changed = changed_once(dict(arguments), edit)
        if changed is not None:
            yield Variant(change, gold.answer or None, calls=[*before, (name, changed)])
    if arguments:
        kept = dict(list(arguments.items())[1:])
        yield Variant("an argument missing", gold.answer or None, calls=[*before, (name, kept)])
    yield Variant("the last call missing", gold.answer or None, calls=before)
    yield Variant(
        "another function", gold.answer or None, calls=[*before, (f"{name}_all", arguments)]
    )
    told = f"I called {name} with {dict(arguments)}."
    yield Variant("a call that is only told", message=told, calls=[])


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same calls in other forms."""
    turned = [(name, dict(reversed(list(arguments.items())))) for name, arguments in gold.calls]
    if any(len(arguments) > 1 for _, arguments in turned):
        yield Variant("arguments in another order", gold.answer or None, calls=turned)


def _last_word(value: Any) -> Any:
    words = value.split() if isinstance(value, str) else []
    return " ".join([*words[:-1], "Harbour"]) if len(words) > 1 else None


def _last_digit(value: Any) -> Any:
    if not isinstance(value, str):
        return None
    found = re.search(r"\d(?=\D*$)", value)
    if found is None:
        return None
    return f"{value[: found.start()]}{(int(found[0]) + 5) % 10}{value[found.end() :]}"


_EDITS: Final = {
    "another last word in an argument": _last_word,
    "another digit in a text argument": _last_digit,
    "a number argument with its digits in another order": swapped_digits,
}


def _changed(arguments: Mapping[str, Any], kind: type) -> Any:
    """One value that is certainly another one."""

    def change(value: Any) -> Any:
        if kind is str and isinstance(value, str):
            return f"not {value}"
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value + 1 if kind is int and number else None

    return changed_once(dict(arguments), change)
