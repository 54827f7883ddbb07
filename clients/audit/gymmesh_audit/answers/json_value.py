"""JSON: one value, key or type changed; the same document in other layouts. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from gymmesh_audit.answers.orders import swapped
from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import ANSWER, Gold


def nearly(gold: Gold) -> Iterator[Variant]:
    """Documents with one fault."""
    document = _read(gold.answer)
    if document is None:
        return
    yield from (
        Variant(name, json.dumps(changed))
        for name, change in _CHANGES.items()
        if (changed := changed_once(document, change)) is not None
    )
    yield Variant("cut before its end", gold.answer.rstrip()[:-1])
    yield Variant("a comma too many", f"{gold.answer.rstrip()[:-1]},{gold.answer.rstrip()[-1]}")
    first = next(iter(document), None) if isinstance(document, dict) else None
    if first is not None:
        wrong = f"{{{json.dumps(first)}: null, {gold.answer.lstrip()[1:]}"
        yield Variant("a key written twice", wrong)
    yield Variant("an empty document", "{}" if isinstance(document, dict) else "[]")


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same document in other layouts."""
    document = _read(gold.answer)
    if document is None:
        return
    yield Variant("indented", json.dumps(document, indent=2, ensure_ascii=False))
    yield Variant("without spaces", json.dumps(document, separators=(",", ":")))
    yield Variant("letters escaped", json.dumps(document, ensure_ascii=True))
    if isinstance(document, dict) and len(document) > 1:
        turned = dict(reversed(document.items()))
        yield Variant("keys in another order", json.dumps(turned))
    yield Variant("line breaks around it", f"\n{gold.answer}\n")
    if gold.form == ANSWER:
        yield Variant("in a fence", message=f"```json\n{gold.answer}\n```")


def changed_once(document: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of the document with one value changed: the first value for which `change` returns a
    new value. None if `change` returns None for every value.
    """
    changed = change(document)
    if changed is not None:
        return changed
    entries: Any = ()
    if isinstance(document, dict):
        entries = document.items()
    elif isinstance(document, list):
        entries = enumerate(document)
    for key, value in entries:
        inner = changed_once(value, change)
        if inner is not None:
            copy = document.copy()
            copy[key] = inner
            return copy
    return None


def swapped_digits(value: Any) -> Any:
    """A whole number with two digits swapped. None if no two digits differ."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    other = int("".join([*("-" * (value < 0)), *swapped(str(abs(value)))]))
    return other if other != value else None


def _text(value: Any) -> Any:
    return f"{value} Harbour" if isinstance(value, str) else None


def _denied(value: Any) -> Any:
    return f"{value} (this is wrong)" if isinstance(value, str) else None


def _number(value: Any) -> Any:
    return value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flag(value: Any) -> Any:
    return not value if isinstance(value, bool) else None


def _as_text(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"about {value}" if number else None


def _without_key(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return None
    return dict(list(value.items())[:-1])


def _without_row(value: Any) -> Any:
    return value[:-1] if isinstance(value, list) and value else None


def _infinite(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float("nan") if number else None


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "one text changed": _text,
    "one text denied": _denied,
    "one number changed": _number,
    "one number with its digits in another order": swapped_digits,
    "one flag changed": _flag,
    "a number as words": _as_text,
    "a key missing": _without_key,
    "an entry missing": _without_row,
    "a number that is NaN": _infinite,
}


def _read(text: str) -> Any:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict | list) else None
