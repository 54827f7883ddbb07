"""Converts a tree of located values to Structs, or raises a sentence for each mistake."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import yaml

from gymmesh_runtime.config.errors import ConfigError, ConfigMistakes, nearest
from gymmesh_runtime.config.secret import Secret
from gymmesh_runtime.config.tree import Items, Leaf, Mark, Table, Tree, join

S = TypeVar("S", bound=msgspec.Struct)

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")
_KINDS = {Leaf: "a single value", Items: "a list", Table: "a map"}


class Filler:
    """Fills Structs from trees, reading variables from `env`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def struct(self, schema: type[S], tree: Tree, path: str) -> S:
        """A Struct from a map.

        Raises:
            ConfigError: unknown or missing keys, wrong types, or a failed check of the Struct.
        """
        if not isinstance(tree, Table):
            raise tree.mark.error(f"expected a map of keys, got {self._describe(tree, path)}", path)
        fields = {field.encode_name: field for field in msgspec.structs.fields(schema)}
        mistakes = ConfigMistakes()
        for key, mark in tree.keys.items():
            if key not in fields:
                problem = f"unknown key; {nearest(key, fields)}"
                mistakes.add(mark.error(problem, join(path, key)))
        values: dict[str, Any] = {}
        for key, field in fields.items():
            if key in tree.members:
                with mistakes.noted():
                    values[field.name] = self.value(field.type, tree.members[key], join(path, key))
            elif field.required:
                mistakes.add(tree.mark.error(f"the key {key!r} is missing", path))
        mistakes.check()
        try:
            return schema(**values)
        except (ValueError, TypeError) as error:
            text = str(error).strip().replace("\n", " ")
            raise tree.mark.error(text or type(error).__name__, path) from None

    def value(self, hint: Any, tree: Tree, path: str) -> Any:
        """A value of the type `hint` from a tree. Raises the same errors as `struct`."""
        origin = typing.get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            return self._union(typing.get_args(hint), tree, path)
        if hint is Any or hint is object:
            if isinstance(tree, Leaf):
                return self._read(tree, path)
            hint = list if isinstance(tree, Items) else dict
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.struct(hint, tree, path)
        base = origin or hint
        if base in (dict, Mapping):
            return self._table(typing.get_args(hint), tree, path)
        if base in (list, tuple, Sequence):
            return self._items(base, typing.get_args(hint), tree, path)
        return self._scalar(hint, tree, path)

    def _union(self, hints: tuple[Any, ...], tree: Tree, path: str) -> Any:
        if isinstance(tree, Leaf) and type(None) in hints and self._read(tree, path) is None:
            return None
        rest = [hint for hint in hints if hint is not type(None)]
        refused: list[tuple[bool, ConfigError]] = []
        for hint in rest:
            try:
                return self.value(hint, tree, path)
            except ConfigError as error:
                refused.append((_is_single(hint) == isinstance(tree, Leaf), error))
        # Of the types it could have been: the last that is of its shape, else the last.
        raise next((error for fits, error in reversed(refused) if fits), refused[-1][1])

    def _table(self, hints: tuple[Any, ...], tree: Tree, path: str) -> dict[Any, Any]:
        if not isinstance(tree, Table):
            raise tree.mark.error(f"expected a map of keys, got {self._describe(tree, path)}", path)
        of, mistakes = hints[1] if len(hints) == 2 else Any, ConfigMistakes()
        values: dict[Any, Any] = {}
        for key, member in tree.members.items():
            with mistakes.noted():
                values[key] = self.value(of, member, join(path, key))
        mistakes.check()
        return values

    def _items(self, base: Any, hints: tuple[Any, ...], tree: Tree, path: str) -> Any:
        if not isinstance(tree, Items):
            raise tree.mark.error(f"expected a list, got {self._describe(tree, path)}", path)
        of, mistakes = hints[0] if hints else Any, ConfigMistakes()
        elements: list[Any] = []
        for place, element in enumerate(tree.elements):
            with mistakes.noted():
                elements.append(self.value(of, element, f"{path}[{place}]"))
        mistakes.check()
        return tuple(elements) if base is tuple else elements

    def _scalar(self, hint: Any, tree: Tree, path: str) -> Any:
        if not isinstance(tree, Leaf):
            raise tree.mark.error(f"expected {_name(hint)}, got {_KINDS[type(tree)]}", path)
        given = self._read(tree, path)
        if _is_text(hint):
            # A variable's text is text even where it looks like a number.
            text = _interpolated(tree, path, self._env).text if "${" in tree.text else given
            if not isinstance(text, str):
                raise tree.mark.error(
                    f"expected text, got {_spell(given)}; put the value in quotes", path
                )
            given = text
        if hint is Secret:
            return Secret(given)
        try:
            # Unquoted text may still be a number (YAML 1.1 reads 1e-3 as text), and so may a
            # variable's, which inside braces must be quoted.
            lenient = isinstance(given, str) and (tree.plain or "${" in tree.text)
            return msgspec.convert(given, hint, strict=not lenient)
        except msgspec.ValidationError as error:
            # What a variable holds is not shown: it may be a secret.
            shown = tree.text if "${" in tree.text else _spell(given)
            raise tree.mark.error(_explain(error, hint, given, shown), path) from None

    def _read(self, leaf: Leaf, path: str) -> Any:
        leaf = _interpolated(leaf, path, self._env)
        return read_plain(leaf.text, leaf.mark, path) if leaf.plain else leaf.text

    def _describe(self, tree: Tree, path: str) -> str:
        if isinstance(tree, Leaf):
            return _spell(self._read(tree, path))
        return _KINDS[type(tree)]


def _interpolated(leaf: Leaf, path: str, env: Mapping[str, str]) -> Leaf:
    """The scalar with the environment's variables in place of `${NAME}` and `${NAME:-default}`.

    As in a shell, the default also stands in for an empty variable; `$${` stands for `${`.
    """
    if "${" not in leaf.text:
        return leaf

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match[1], match[2]
        if name is None:
            problem = (
                "contains '${', but not as ${NAME} or ${NAME:-default}; write '$${' for the two "
                "characters '${'"
            )
            raise leaf.mark.error(problem, path)
        value = env.get(name)
        if default is not None:
            return value or default
        if value is None:
            problem = (
                f"the environment variable {name} is not set; set this variable, or give a default "
                f"with ${{{name}:-default}}"
            )
            raise leaf.mark.error(problem, path)
        return value

    return Leaf(_REFERENCE.sub(replace, leaf.text), leaf.plain, leaf.mark)


def read_plain(text: str, mark: Mark, path: str) -> Any:
    """What an unquoted YAML scalar means: null, a boolean, a number or text."""
    loader = yaml.SafeLoader("")
    try:
        # The resolver's method has no types.
        tag: str = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        if tag.endswith((":timestamp", ":merge", ":value")):
            return text
        return loader.construct_object(yaml.ScalarNode(tag, text))
    except (ValueError, yaml.YAMLError):
        problem = f"{text!r} is neither a number nor text; put the value in quotes"
        raise mark.error(problem, path) from None
    finally:
        loader.dispose()


def _is_single(hint: Any) -> bool:
    """Whether a type is of single values, rather than of maps or lists."""
    base = typing.get_origin(_base(hint)) or _base(hint)
    several = (dict, Mapping, list, tuple, Sequence, msgspec.Struct)
    return not (isinstance(base, type) and issubclass(base, several))


def _base(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _is_text(hint: Any) -> bool:
    base = _base(hint)
    return isinstance(base, type) and issubclass(base, str) and not hasattr(base, "__members__")


def _explain(error: msgspec.ValidationError, hint: Any, given: Any, shown: str) -> str:
    choices = [member.value for member in getattr(hint, "__members__", {}).values()]
    if typing.get_origin(hint) is typing.Literal:
        choices = list(typing.get_args(hint))
    if choices:
        return f"{shown} is not valid here; {nearest(str(given), map(str, choices))}"
    if typing.get_origin(hint) is typing.Annotated and "Expected `" in str(error):
        return f"{str(error)[:1].lower()}{str(error)[1:].replace('`', '')}, got {shown}"
    return f"expected {_name(hint)}, got {shown}"


def _name(hint: Any) -> str:
    base = _base(hint)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if base in names:
        return names[base]
    return "text" if base is Secret else str(getattr(base, "__name__", base))


def _spell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else "a text"
    return str(value)
