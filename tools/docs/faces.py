"""A page for each public Python package, which Sphinx fills from the docstrings (pure).

A name is described once: those of `gymmesh` on its page, in groups by the package that has them;
a page of another package names them and describes the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final

from tools.docs.shelves import toctree

#: What a group of names of `gymmesh` is for, by the first package of their home.
GROUPS: Final = {
    "gymmesh_resource": "Environments",
    "gymmesh_agent": "Agents",
    "gymmesh_trainers": "Training",
    "gymmesh_client": "Collecting",
    "gymmesh_mesh": "Meshes",
    "gymmesh_model": "Models",
    "gymmesh_sandbox_access": "Sandboxes",
    "gymmesh_responses": "Responses documents",
    "gymmesh_runtime": "Configuration, security and errors",
}


def face_pages(face: ModuleType, others: Sequence[ModuleType]) -> dict[str, str]:
    """The pages by name: `index.md`, one of `face`, and one of each other package."""
    shared = {name: getattr(face, name) for name in face.__all__}
    pages = {f"{face.__name__}.md": "\n".join(_of_face(face))}
    for other in others:
        pages[f"{other.__name__}.md"] = "\n".join(_of_other(other, face.__name__, shared))
    listed = [f"- [`{name.removesuffix('.md')}`]({name})" for name in pages]
    index = [
        "# Python API",
        "",
        "The names that programs import, from their docstrings.",
        "",
        *listed,
        "",
        toctree([*pages]),
    ]
    return {"index.md": "\n".join(index)} | pages


def _of_face(face: ModuleType) -> Iterator[str]:
    yield from _head(face)
    groups: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name in face.__all__:
        # Which room a name is from; a value such as a text does not know it.
        home: str = face._HOME[name]
        groups[GROUPS[home.partition(".")[0]]].append(name)
    for title, names in groups.items():
        if names:
            yield f"## {title}"
            yield ""
            for name in names:
                yield from _described(face.__name__, name, getattr(face, name))


def _of_other(module: ModuleType, face: str, shared: dict[str, Any]) -> Iterator[str]:
    yield from _head(module)
    both = [n for n in module.__all__ if shared.get(n) is getattr(module, n)]
    if both:
        links = ", ".join(f"{{py:obj}}`{name} <{face}.{name}>`" for name in both)
        yield f"Also in [`{face}`]({face}.md), where they are described: {links}."
        yield ""
    for name in module.__all__:
        if name not in both:
            yield from _described(module.__name__, name, getattr(module, name))


def _head(module: ModuleType) -> Iterator[str]:
    yield f"# {module.__name__}"
    yield ""
    yield f"```{{eval-rst}}\n.. py:module:: {module.__name__}\n```"
    yield ""
    yield f"```text\n{inspect.getdoc(module)}\n```"
    yield ""


def _described(module: str, name: str, value: Any) -> Iterator[str]:
    yield "```{eval-rst}"
    yield f".. {_directive(value)}:: {module}.{name}"
    if isinstance(value, type):
        yield "   :members:"
        yield "   :undoc-members:"
        yield "   :member-order: bysource"
    yield "```"
    yield ""


def _directive(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        return "autoexception"
    if isinstance(value, type):
        return "autoclass"
    # Of a constant there is no docstring: it would be that of its type.
    return "autofunction" if callable(value) else "py:data"
