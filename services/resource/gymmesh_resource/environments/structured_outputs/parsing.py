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
from importlib import import_module
from typing import Any, Final, Literal, NoReturn, get_args

TextFormat = Literal["json", "yaml", "xml", "toml", "csv"]
FORMATS: Final[tuple[TextFormat, ...]] = get_args(TextFormat)

# Characters of a response, and values in what it stands for.
LARGEST: Final = 2_000_000
VALUES: Final = 1_000_000
# Levels of YAML.
DEEPEST: Final = 200

# A hundred parts of a TOML key: the parser takes quadratic memory for them.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")


class ParseError(ValueError):
    """A response that is not of its format; the text says why."""


def parse(text: str, format: TextFormat) -> Any:
    """What the text stands for. Raises `ParseError`."""
    if len(text) > LARGEST:
        raise ParseError(f"longer than {LARGEST} characters")
    try:
        value = _parse(text, format)
        _count(value, {}, set())
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
            return json.loads(text, parse_constant=_no_json)
        case "yaml":
            return _yaml(text)
        case "xml":
            return import_module("xmltodict").parse(text)
        case "toml":
            if _LONG_KEY.search(text):
                raise ParseError("a key has too many parts")
            return tomllib.loads(text)
        case "csv":
            return _rows(text)


def _yaml(text: str) -> Any:
    yaml = import_module("yaml")
    # The one in C, where there is one, reads the same ten times as fast; but it crashes on what
    # is nested deeply, so that is counted first.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise ParseError("nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return yaml.load(text, Loader=loader)


def _no_json(name: str) -> NoReturn:
    raise ParseError(f"{name} is no JSON")


def _rows(text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text))
    rows = list(reader)
    if any(None in row for row in rows):
        raise ParseError("a row has more fields than the header")
    return [dict(row) for row in rows]


def _count(value: Any, known: dict[int, int], above: set[int]) -> int:
    """How many values there are, each counted wherever it is referred to."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ParseError(f"{value} is no number of JSON")
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
