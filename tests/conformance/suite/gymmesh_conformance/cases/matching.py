"""What a case expects, and whether it came: data against data.

Messages are compared in their proto JSON form with the names of the .proto files. An object
expects at least its keys; a list expects as many elements, each in its place; everything else is
compared as a value (64-bit integers, strings in proto JSON, also with a plain number). Tags say
the rest:

    !set            there, and not empty          !absent          not there, or empty
    !contains TEXT  a string that holds TEXT      !bytes TEXT      a bytes field, given as text
    !holds TEXT     bytes that hold TEXT          !json VALUE      a bytes field, given as JSON
    !some [A, B]    a list with A and B among others, in this order
    !none [A, B]    a list in which nothing matches A or B
    !all [A, B]     what matches A and B
    !not VALUE      anything that does not match VALUE
    !lacks TEXT     bytes that do not hold TEXT
    !below N        a number below N                 !big N  a text of N characters
    !at_most N      N or less, also as a string      !at_least N  N or more, also as a string
    !near T, !not_before T, !not_after T             times in nanoseconds, to a millisecond
    !lacks_bytes B  bytes that do not hold those of the bytes field B
    !latin TEXT     a bytes field, a byte for each character up to \xff
    !data N         a bytes field of N bytes, the same ones each time
    !tar [{name: a, content: x}]                     an archive: see archives.py
    !tar_gz […]     the same, compressed             !text_of N   the bytes of !data as text
    !slice {of: BYTES, from: 0, to: 9}               a part of a bytes field
    !flipped {of: BYTES, bit: 3}                     the same with one bit changed
    !many {count: N, of: X}                          a list of N times the same

`${name}` stands for a variable, alone with its type kept or inside a string; `${id:label}` for a
string that is unique to the run of the case and the same wherever the label is. A variable's name
may have a variable in it: `${lease_${time}}`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from google.protobuf import json_format
from google.protobuf.message import Message

from gymmesh_conformance.cases.archives import flipped, pack, some_bytes

try:
    from yaml import CSafeLoader as SafeLoader  # six times as fast
except ImportError:  # yaml was built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]  # likewise safe

_VARIABLE: Final = re.compile(r"\$\{([^${}]+)\}")


@dataclass(frozen=True)
class Tag:
    """A tagged value: its tag without the exclamation mark, and what stood behind it."""

    name: str
    value: Any


class _Loader(SafeLoader):
    """YAML with the tags above."""


def _construct(name: str) -> Callable[[Any, Any], Tag]:
    def construct(loader: Any, node: Any) -> Tag:
        if isinstance(node, yaml.SequenceNode):
            return Tag(name, loader.construct_sequence(node, deep=True))
        if isinstance(node, yaml.MappingNode):
            return Tag(name, loader.construct_mapping(node, deep=True))
        if name == "not" and not node.style:  # `!not 3` is a number, `!not "3"` is not
            return Tag(name, yaml.safe_load(node.value))
        return Tag(name, loader.construct_scalar(node))

    return construct


for _name in (
    "set",
    "absent",
    "contains",
    "bytes",
    "holds",
    "json",
    "some",
    "none",
    "all",
    "not",
    "below",
    "big",
    "lacks",
    "at_most",
    "at_least",
    "latin",
    "data",
    "tar",
    "tar_gz",
    "text_of",
    "slice",
    "flipped",
    "many",
    "lacks_bytes",
    "near",
    "not_before",
    "not_after",
):
    _Loader.add_constructor(f"!{_name}", _construct(_name))


def load_yaml(path: Path) -> Any:
    """Reads a file with the tags above."""
    with path.open(encoding="utf-8") as file:
        return yaml.load(file, _Loader)  # a SafeLoader with tags of its own


def names_in(node: Any) -> set[str]:
    """The names of the variables that something uses."""
    found = (name for name in _VARIABLE.findall(str(node)) if ":" not in name)
    return {name.partition(".")[0] for name in found}


def render(node: Any, lookup: Callable[[str], Any]) -> Any:
    """Fills in variables and turns the tags of bytes fields into base64. Raises LookupError."""
    if isinstance(node, str):
        return _render_text(node, lookup)
    if isinstance(node, Mapping):
        return {render(key, lookup): render(value, lookup) for key, value in node.items()}
    if isinstance(node, list):
        return [render(value, lookup) for value in node]
    if isinstance(node, Tag):
        value = render(node.value, lookup)
        if node.name in _OTHERS:
            return _OTHERS[node.name](value)
        if node.name in _BYTES:
            return base64.b64encode(_BYTES[node.name](value)).decode()
        return Tag(node.name, value)
    return node


#: The tags that stand for a bytes field, and what is in it.
_BYTES: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "bytes": lambda value: str(value).encode(),
    "json": lambda value: json.dumps(value).encode(),
    "latin": lambda value: str(value).encode("latin-1"),
    "data": lambda value: some_bytes(int(value)),
    "tar": lambda value: pack(value, gzip=False),
    "tar_gz": lambda value: pack(value, gzip=True),
    "slice": lambda value: base64.b64decode(value["of"])[value["from"] : value["to"]],
    "flipped": lambda value: flipped(base64.b64decode(value["of"]), int(value["bit"])),
}
#: The tags that stand for another value.
_OTHERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "big": lambda value: "x" * int(value),
    "text_of": lambda value: some_bytes(int(value)).decode("latin-1"),
    "many": lambda value: [value["of"]] * int(value["count"]),
}


def _render_text(text: str, lookup: Callable[[str], Any]) -> Any:
    whole = _VARIABLE.fullmatch(text)
    if whole:
        return render(lookup(whole[1]), lookup)
    filled = _VARIABLE.sub(lambda found: str(lookup(found[1])), text)
    return filled if filled == text else _render_text(filled, lookup)


def to_plain(message: Message) -> dict[str, Any]:
    """A message in the form in which it is compared."""
    plain: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return plain


def mismatches(expected: Any, actual: Any, where: str) -> list[str]:
    """What in `actual` is not as expected, a sentence each; empty when all is well."""
    if isinstance(expected, Tag):
        return _tag_mismatches(expected, actual, where)
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping):
            return [f"{where}: expected an object, got {_short(actual)}"]
        return [
            problem
            for key, value in expected.items()
            for problem in mismatches(value, actual.get(key), f"{where}.{key}")
        ]
    if isinstance(expected, list):
        return _list_mismatches(expected, actual, where)
    if _equal(expected, actual):
        return []
    return [f"{where}: expected {_short(expected)}, got {_short(actual)}"]


def _list_mismatches(expected: list[Any], actual: Any, where: str) -> list[str]:
    if not isinstance(actual, list):
        return [f"{where}: expected a list, got {_short(actual)}"]
    if len(expected) != len(actual):
        return [f"{where}: expected {len(expected)} elements, got {len(actual)}: {_short(actual)}"]
    return [
        problem
        for index, (one, other) in enumerate(zip(expected, actual, strict=True))
        for problem in mismatches(one, other, f"{where}[{index}]")
    ]


def _tag_mismatches(tag: Tag, actual: Any, where: str) -> list[str]:
    empty = actual is None or actual == "" or actual == [] or actual == {}
    if tag.name == "set":
        return [f"{where}: expected to be set"] if empty else []
    if tag.name == "absent":
        return [] if empty else [f"{where}: expected to be absent, got {_short(actual)}"]
    if tag.name == "not":
        same = not mismatches(tag.value, actual, where)
        return [f"{where}: expected anything but {_short(tag.value)}"] if same else []
    if tag.name == "below":
        fits = isinstance(actual, int | float) and actual < float(tag.value)
        return [] if fits else [f"{where}: expected less than {tag.value}, got {_short(actual)}"]
    if tag.name in _BOUNDS:
        return _bound_mismatches(tag, actual, where)
    if tag.name == "some":
        return _some_mismatches(tag.value, actual, where)
    if tag.name == "all":
        return [problem for one in tag.value for problem in mismatches(one, actual, where)]
    if tag.name == "none":
        return [
            f"{where}: expected nothing like {_short(one)} in {_short(actual)}"
            for one in tag.value
            if any(not mismatches(one, other, where) for other in actual or ())
        ]
    text = str(actual or "")
    if tag.name == "lacks_bytes":
        there = base64.b64decode(tag.value) in base64.b64decode(text)
        return [f"{where}: expected not to hold what it must not"] if there else []
    if tag.name in ("holds", "lacks"):
        text = base64.b64decode(text).decode("utf-8", "surrogateescape")
    if tag.name == "lacks":
        there = str(tag.value) in text
        return [f"{where}: expected not to hold {tag.value!r}"] if there else []
    if str(tag.value) in text:
        return []
    return [f"{where}: expected to hold {tag.value!r}, got {_short(text)}"]


def _bound_mismatches(tag: Tag, actual: Any, where: str) -> list[str]:
    try:
        number, bound = int(actual or 0), int(tag.value)
    except (TypeError, ValueError):
        return [f"{where}: expected a number, got {_short(actual)}"]
    low, high, slack = _BOUNDS[tag.name]
    if (not low or number >= bound - slack) and (not high or number <= bound + slack):
        return []
    return [f"{where}: expected {tag.name.replace('_', ' ')} {bound}, got {number}"]


#: Tags that bound a number: whether from below, whether from above, and what it may be off.
_BOUNDS: Final[Mapping[str, tuple[bool, bool, int]]] = {
    "at_least": (True, False, 0),
    "at_most": (False, True, 0),
    "near": (True, True, 1_000_000),
    "not_before": (True, False, 1_000_000),
    "not_after": (False, True, 1_000_000),
}


def _some_mismatches(expected: list[Any], actual: Any, where: str) -> list[str]:
    if not isinstance(actual, list):
        return [f"{where}: expected a list, got {_short(actual)}"]
    rest = iter(actual)
    for one in expected:
        if all(mismatches(one, other, where) for other in rest):
            return [f"{where}: nothing (further on) matches {_short(one)} in {_short(actual)}"]
    return []


def _equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, str):
        return str(expected) == actual
    return bool(expected == actual)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
