"""The loader. It applies files, overrides, environment variables and types, in this order."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gymmesh_runtime.config.errors import ConfigError
from gymmesh_runtime.config.fill import Filler, read_plain
from gymmesh_runtime.config.tree import Items, Leaf, Mark, Table, Tree, merge, parse, read_file

T = TypeVar("T", bound=msgspec.Struct)

_NULLS = ("", "~", "null", "Null", "NULL")
_STEP = re.compile(r'"([^"]*)"|([^."=]+)')
_KEY = re.compile(r'((?:"[^"]*"|[^."=]+)(?:\.(?:"[^"]*"|[^."=]+))*)=')


def load_config(
    files: Sequence[Path],
    sets: Sequence[str],
    schema: type[T],
    env: Mapping[str, str] = os.environ,
    *,
    under: Mapping[str, Any] | None = None,
) -> T:
    """Read a configuration.

    Args:
        under: a result of `merged_document`, which the files override.
        files: YAML files, merged left to right: maps deeply, lists and scalars replaced.
        sets: overrides `a.b.c=value` with YAML values, applied over the files in order.
        schema: the Struct to fill. Its own checks (`__post_init__` raising ValueError) also apply.
        env: the variables that `${NAME}` and `${NAME:-default}` read.

    Raises:
        ConfigError: any mistake, in one sentence with file, line and key path.
    """
    return Filler(env).struct(schema, _merged(files, sets, under), "")


def merged_document(
    files: Sequence[Path], sets: Sequence[str], under: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The files and overrides as one document of JSON values. `${NAME}` stays as it was written.

    Raises ConfigError.
    """
    document: dict[str, Any] = _plain(_merged(files, sets, under))
    return document


def _merged(files: Sequence[Path], sets: Sequence[str], under: Mapping[str, Any] | None) -> Tree:
    tree: Tree = Table({}, Mark(str(files[0]) if files else "", 0))
    if under:
        kept = parse(json.dumps(under), "the run's configuration", line=0)
        tree = tree if kept is None else kept
    for path in files:
        tree = merge(tree, read_file(Path(path)))
    for text in sets:
        over = _read_override(text)
        _check_override(tree, over)
        tree = merge(tree, over)
    return tree


def _plain(tree: Tree) -> Any:
    """A tree as JSON values, which YAML reads as the same tree again."""
    if isinstance(tree, Table):
        return {key: _plain(member) for key, member in tree.members.items()}
    if isinstance(tree, Items):
        return [_plain(element) for element in tree.elements]
    if not tree.plain or "${" in tree.text:
        return tree.text
    value = read_plain(tree.text, tree.mark, "")
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)  # YAML 1.1 reads 1e-3 as text, and the loader as a number
    return value


def _read_override(text: str) -> Table:
    """Turn `a.b.c=value` into the tree that it lays over the files.

    The value is YAML: `3`, `true`, `[a, b]`, `{k: v}` or text. A key that holds a dot is
    written in double quotes: `models."gpt-4.1".timeout_s=60`.

    Raises:
        ConfigError: no `=`, an empty key, or a value that is not YAML.
    """
    steps, value = _split(text)
    mark = Mark("--set " + ".".join(steps))
    tree: Tree = parse(value, mark.source, line=0) or Leaf("null", True, mark)
    for step in reversed(steps):
        tree = Table({step: tree}, mark, {step: mark})
    assert isinstance(tree, Table)
    return tree


def _check_override(under: Tree, over: Tree, path: str = "") -> None:
    """Refuse an override that goes through a value that has no keys.

    Raises:
        ConfigError: the path leads through a list or a scalar other than null.
    """
    if not isinstance(over, Table):
        return
    if isinstance(under, Table):
        for key, value in over.members.items():
            if key in under.members:
                _check_override(under.members[key], value, f"{path}.{key}" if path else key)
        return
    is_null = isinstance(under, Leaf) and under.plain and under.text in _NULLS
    if not is_null and len(over.members) == 1:
        kind = "a list" if isinstance(under, Items) else "a single value"
        raise over.mark.error(f"{path} is {kind} and has no keys to set")


def _split(text: str) -> tuple[list[str], str]:
    key = _KEY.match(text)
    found = [] if key is None else _STEP.findall(key[1])
    steps = [(quoted or plain).strip() for quoted, plain in found]
    if key is None or not all(steps):
        raise ConfigError("expected key.path=value", source=f"--set {text}")
    return steps, text[key.end() :]
