"""Reads YAML by the core schema of its version 1.2, which JSON Schema's types fit.

PyYAML's own rules are those of 1.1: there `no` is false, 1749-08-28 a date, 012 ten and 1_000 a
number. Here they are text, text, twelve and text. A key that appears twice is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

# Levels of nesting.
DEEPEST: Final = 200

_TAG: Final = "tag:yaml.org,2002:"
# Scalars by the type that they are read as, and the characters that each may begin with.
_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)


class YamlError(ValueError):
    """A text that is not YAML, or that JSON has no like of."""


def load_yaml(text: str) -> Any:
    """What one document stands for. Raises `YamlError` and PyYAML's own errors."""
    yaml = import_module("yaml")
    loader = _loader()
    depth = 0
    # The parser in C crashes on what is nested deeply, so that is counted first.
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise YamlError("nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return yaml.load(text, Loader=loader)


@cache
def _loader() -> Any:
    """PyYAML's loader, in C where there is one, with the rules of 1.2."""
    yaml = import_module("yaml")
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rules: dict[str, Any] = {"yaml_implicit_resolvers": {}, "yaml_constructors": {}}
    loader: Any = type("Yaml12Loader", (base,), rules)
    for kind, pattern, first in _SCALARS:
        characters = ["" if one == "\0" else one for one in first]
        loader.add_implicit_resolver(_TAG + kind, re.compile(rf"(?:{pattern})\Z"), characters)
    for kind, read in _readers(base).items():
        loader.add_constructor(_TAG + kind, read)
    loader.add_constructor(None, _refuse_tag)
    return loader


def _readers(base: Any) -> dict[str, Callable[[Any, Any], Any]]:
    return {
        "null": lambda loader, node: None,
        "bool": lambda loader, node: loader.construct_scalar(node).lower() == "true",
        "int": lambda loader, node: _integer(loader.construct_scalar(node)),
        "float": lambda loader, node: _float(loader.construct_scalar(node)),
        "str": lambda loader, node: loader.construct_scalar(node),
        "seq": base.construct_yaml_seq,
        "map": _mapping,
    }


def _mapping(loader: Any, node: Any) -> Any:
    """A mapping; in two steps, so that one may refer to itself, which is refused later."""
    found: dict[Any, Any] = {}
    yield found
    for key_node, value_node in node.value:
        key = key_node.value  # as it is written: JSON's keys are texts
        if not isinstance(key, str):
            raise YamlError("a key is not text")
        if key in found:
            raise YamlError(f"the key {key!r} appears twice")
        found[key] = loader.construct_object(value_node, deep=True)


def _integer(text: str) -> int:
    for prefix, base in (("0o", 8), ("0x", 16)):
        if text.startswith(prefix):
            return int(text[2:], base)
    return int(text)


def _float(text: str) -> float:
    bare = text.lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(bare)


def _refuse_tag(loader: Any, node: Any) -> Any:
    raise YamlError(f"the tag {node.tag!r} is not in the core schema of YAML")
