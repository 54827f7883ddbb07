"""The program in a text as LiveCodeBench reads it, and what a program defines. Pure.

This module is sent into the sandbox with the driver, so it imports no other module of gymmesh.
"""

from __future__ import annotations

_FENCE = "```"
_ONLY_AST = 0x400  # as ast.PyCF_ONLY_AST: importing ast takes longer than parsing


def last_block(text: str) -> str:
    """The text between the last two lines with a code fence; empty without two such lines.

    LiveCodeBench reads answers in this way, and drops other text of the two lines.
    """
    lines = text.split("\n")
    fences = [index for index, line in enumerate(lines) if _FENCE in line]
    if len(fences) < 2:
        return ""
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


def defines(source: str, name: str) -> bool:
    """Whether a source text is Python that defines a function (or assigns the name) at its top.

    Parsing can take as much memory and stack as the text's author likes: for a candidate's
    program it is done in the sandbox.
    """
    try:
        body = compile(source, "<program>", "exec", _ONLY_AST, dont_inherit=True).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in body:
        kind = type(node).__name__
        if kind in ("FunctionDef", "AsyncFunctionDef") and node.name == name:
            return True
        if kind == "Assign" and any(getattr(to, "id", None) == name for to in node.targets):
            return True
    return False
