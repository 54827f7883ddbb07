"""Reading a response in one of the formats that schemas are for.

Invariant: what `parse` gives is small when written out in full: YAML's references may make a
short text stand for a tree that nothing could walk through. And its numbers are finite: JSON has
no others, and NaN would be within all limits of a schema.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tomllib
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, NoReturn, get_args

from gymmesh_resource.environments.structured_outputs import nemo
from gymmesh_resource.environments.structured_outputs.yaml12 import load_yaml

TextFormat = Literal["json", "yaml", "xml", "toml", "csv"]
FORMATS: Final[tuple[TextFormat, ...]] = get_args(TextFormat)

# Characters of a response, and values in what it stands for.
LARGEST: Final = 2_000_000
VALUES: Final = 1_000_000
# Characters of a key in a message.
_SHOWN: Final = 50

# A hundred parts of a TOML key: the parser takes quadratic memory for them.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")


class ParseError(ValueError):
    """A response that is not of its format; the text says why."""


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV text: the names of its columns, and its rows by them."""

    columns: list[str]
    rows: list[dict[str, Any]]


def parse(text: str, format: TextFormat, compat: str = "") -> Any:
    """What the text stands for, in CSV a `CsvTable`. Raises `ParseError`.

    compat: the reference that it is read like; `nemo` reads CSV as a list of rows.
    """
    if len(text) > LARGEST:
        raise ParseError(f"longer than {LARGEST} characters")
    try:
        value = _parse_as_nemo(text, format) if compat else _parse(text, format)
        _count(value.rows if isinstance(value, CsvTable) else value, {}, set())
    except RecursionError:
        raise ParseError("nested too deeply") from None
    except ParseError:
        raise
    except Exception as error:  # each parser has errors of its own, and some leak others
        raise ParseError(f"{type(error).__name__}: {error}") from None
    return value


def _parse(text: str, format: TextFormat) -> Any:
    match format:
        case "json":
            return json.loads(text, parse_constant=_no_json, object_pairs_hook=_pairs)
        case "yaml":
            return load_yaml(text)
        case "xml":
            return import_module("xmltodict").parse(text)
        case "toml":
            if _LONG_KEY.search(text):
                raise ParseError("a key has too many parts")
            return tomllib.loads(text)
        case "csv":
            return _table(text)


def _parse_as_nemo(text: str, format: TextFormat) -> Any:
    match format:
        case "json":
            return json.loads(text, parse_constant=_no_json)
        case "yaml":
            return nemo.load_yaml(text)
        case "csv":
            return nemo.read_rows(text)
    return _parse(text, format)


def _no_json(name: str) -> NoReturn:
    raise ParseError(f"{name} is not JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, whose keys come once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ParseError(f"the key {twice[:_SHOWN]!r} appears twice")
    return found


def _table(text: str) -> CsvTable:
    lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    header, *rows = lines or [[]]
    if len(set(header)) < len(header):
        raise ParseError("a column of the header appears twice")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ParseError(
                f"row {number} has {len(row)} fields, but the header has {len(header)}"
            )
    return CsvTable(header, [dict(zip(header, row, strict=True)) for row in rows])


def _count(value: Any, known: dict[int, int], above: set[int]) -> int:
    """How many values there are, each counted wherever it is referred to."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ParseError(f"{value} is not a JSON number")
    if not isinstance(value, dict | list):
        return 1
    key = id(value)
    if key in above:
        raise ParseError("refers to itself")
    if key not in known:
        above.add(key)
        inner = value.values() if isinstance(value, dict) else value
        known[key] = 1 + sum(_count(part, known, above) for part in inner)
        above.discard(key)
        if known[key] > VALUES:
            raise ParseError(f"more than {VALUES} values")
    return known[key]
