"""Assertions of known data sets as a test of the environment code. Pure; each raises RowRefused.

The test must be able to run without the data set's own solution: a name that only the solution
defines would fail every answer.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from gymmesh_data.imports.items import RowRefused

_PARSING = (SyntaxError, ValueError, RecursionError, MemoryError)


def tested_function(code: str, tests: Sequence[str]) -> str:
    """The one function of a solution that its tests call."""
    defined = _functions(_parsed(code, "the solution"))
    called = _called(_statements(tests)) & defined
    if len(called) != 1:
        told = ", ".join(sorted(called)) or "none"
        raise RowRefused(
            f"the tests call {told} of the solution's functions; the tests must call exactly "
            "one function"
        )
    return called.pop()


def check_of_asserts(entry: str, setup: str | Sequence[str] | None, tests: Sequence[str]) -> str:
    """Test code with `check(candidate)`, which makes the assertions about the candidate."""
    before = _parsed(_setup_text(setup), "the setup")
    statements = _statements(tests)
    if not any(isinstance(node, ast.Assert) for one in statements for node in ast.walk(one)):
        raise RowRefused("has no assertion")
    missing = _free_names([*before, *statements]) - {entry}
    if missing:
        raise RowRefused(
            f"uses {', '.join(sorted(missing))}, but neither the tests nor the setup "
            "define these names; remove the row"
        )
    body = ast.parse(f"def check(candidate):\n    {entry} = candidate").body
    check = body[0]
    assert isinstance(check, ast.FunctionDef)
    check.body += statements
    return "\n\n".join(ast.unparse(part) for part in (*before, check)) + "\n"


def _setup_text(setup: str | Sequence[str] | None) -> str:
    if setup is None or isinstance(setup, str):
        return setup or ""
    return "\n".join(one for one in setup if isinstance(one, str))


def _statements(tests: Sequence[str]) -> list[ast.stmt]:
    if not tests:
        raise RowRefused("is empty; at least one test is required")
    return [statement for test in tests for statement in _parsed(test.strip(), "a test")]


def _parsed(source: str, what: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except _PARSING as error:
        raise RowRefused(f"{what} is not Python: {error}") from None


def _functions(body: list[ast.stmt]) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = {one.name for one in body if isinstance(one, kinds)}
    for one in body:
        if isinstance(one, ast.Assign):
            found |= {to.id for to in one.targets if isinstance(to, ast.Name)}
    return found


def _called(statements: list[ast.stmt]) -> set[str]:
    """All names that are read, so that a function passed to another one counts, too."""
    return {
        node.id
        for one in statements
        for node in ast.walk(one)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _free_names(statements: list[ast.stmt]) -> set[str]:
    """Names that are read and nowhere bound, and no builtins."""
    bound, read = set[str](), set[str]()
    for one in statements:
        for node in ast.walk(one):
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = ((alias.asname or alias.name) for alias in node.names)
                bound |= {name.split(".", 1)[0] for name in names}
    return read - bound - set(dir(builtins))
