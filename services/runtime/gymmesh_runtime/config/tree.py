"""The configuration as a tree that remembers where each value was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

from gymmesh_runtime.config.errors import ConfigError
from gymmesh_runtime.text import os_reason

_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a value was written: a file and a line (from 1), or an override and line 0."""

    source: str
    line: int = 0

    def error(self, problem: str, path: str = "") -> ConfigError:
        """A ConfigError for the value at `path`, which was written at this mark."""
        return ConfigError(problem, source=self.source, line=self.line, path=path)


@dataclass(slots=True)
class Leaf:
    """A scalar as it was written. `plain`: it had no quotes, so it may be a number."""

    text: str
    plain: bool
    mark: Mark


@dataclass(slots=True)
class Items:
    """A list."""

    elements: list[Tree]
    mark: Mark


@dataclass(slots=True)
class Table:
    """A map; `keys` says where each key was written."""

    members: dict[str, Tree]
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)


Tree: TypeAlias = Leaf | Items | Table


def read_file(path: Path) -> Table:
    """Read one YAML file whose root is a map. An empty file is an empty map.

    Raises:
        ConfigError: unreadable, not YAML, a duplicate key, a key that is not a string, or a root
            that is not a map.
    """
    file, first_line = Mark(str(path)), Mark(str(path), 1)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise file.error("is not UTF-8 text") from None
    except OSError as error:
        raise file.error(f"cannot be read: {os_reason(error)}") from None
    tree = parse(text, str(path))
    if tree is None:
        return Table({}, first_line)
    if not isinstance(tree, Table):
        raise first_line.error("must hold a map of keys at its root")
    return tree


def parse(text: str, source: str, *, line: int | None = None) -> Tree | None:
    """Parse YAML text; None if it has no document. `line` replaces the line numbers of the text.

    Raises:
        ConfigError: not YAML, a duplicate key, or a key that is not a string.
    """
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:  # a character that YAML does not allow
        reason = getattr(error, "reason", "unreadable")
        raise ConfigError(f"not valid YAML: {reason}", source=source, line=line or 0) from None
    try:
        node = loader.get_single_node()
        return None if node is None else _Reader(loader, source, line).read(node)
    except yaml.YAMLError as error:
        at = getattr(error, "problem_mark", None)
        where = line if line is not None else (at.line + 1 if at else 0)
        problem = getattr(error, "problem", None) or "unreadable"
        raise ConfigError(f"not valid YAML: {problem}", source=source, line=where) from None
    finally:
        loader.dispose()


class _Reader:
    """Turns yaml's nodes into a Tree."""

    def __init__(self, loader: yaml.SafeLoader, source: str, line: int | None) -> None:
        self._loader = loader
        self._source = source
        self._line = line

    def _mark(self, node: yaml.Node) -> Mark:
        return Mark(self._source, node.start_mark.line + 1 if self._line is None else self._line)

    def read(self, node: yaml.Node, path: str = "", depth: int = 0) -> Tree:
        mark = self._mark(node)
        if depth > _MAX_DEPTH:
            raise mark.error("nested too deeply", path[:80])
        if isinstance(node, yaml.ScalarNode):
            return Leaf(node.value, node.style is None, mark)
        if isinstance(node, yaml.SequenceNode):
            elements = [
                self.read(child, f"{path}[{place}]", depth + 1)
                for place, child in enumerate(node.value)
            ]
            return Items(elements, mark)
        assert isinstance(node, yaml.MappingNode)
        self._refuse_duplicates(node, path)
        # Puts what `<<` merges before the map's own keys, which then win.
        self._loader.flatten_mapping(node)
        table = Table({}, mark)
        for key, value in node.value:
            table.members[key.value] = self.read(value, join(path, key.value), depth + 1)
            table.keys[key.value] = self._mark(key)
        return table

    def _refuse_duplicates(self, node: yaml.MappingNode, path: str) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            mark = self._mark(key)
            if not isinstance(key, yaml.ScalarNode):
                raise mark.error("a key must be a plain string", path)
            if key.value in first:
                problem = (
                    f"the key is given twice (first on line {first[key.value]}); remove one "
                    "of the two lines"
                )
                raise mark.error(problem, join(path, key.value))
            first[key.value] = mark.line


def merge(under: Tree, over: Tree) -> Tree:
    """Merge one tree over another. Maps are merged deeply, all other values are replaced."""
    if not (isinstance(under, Table) and isinstance(over, Table)):
        return over
    merged = Table(dict(under.members), under.mark, {**under.keys, **over.keys})
    for key, value in over.members.items():
        below = merged.members.get(key)
        merged.members[key] = value if below is None else merge(below, value)
    return merged


def join(path: str, key: str) -> str:
    """The path of a key below `path`. A key that contains a dot is quoted."""
    spelled = key if key and "." not in key and '"' not in key else f'"{key}"'
    return f"{path}.{spelled}" if path else spelled
