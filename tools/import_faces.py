"""The import-linter contract `faces`: a room is imported by its face.

A package's rooms are the modules and packages directly below it; a room's face is its
`__init__.py`. What a room has inside is imported by nobody else, so that it can be moved without
a look at the rest of the house.

Two kinds of modules say in a constant of their own that they differ:

    MEMBERS_ARE_ROOMS = True  in the `__init__.py` of a package whose members are rooms of their
                              own, since they are found by name
    IS_FACE = True            in a module that is imported from its own file, since it loads a
                              library that the rest of its room does without
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

_ROOM = 2  # a room's name has two parts: package.room


@cache
def _constants_of(module: str) -> Mapping[str, Any]:
    """The constants that the contract reads of a module, which is not imported for it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    found: dict[str, Any] = {}
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in ("__all__", "MEMBERS_ARE_ROOMS", "IS_FACE"):
                found[name] = ast.literal_eval(statement.value)
    return found


class FacesContract(Contract):
    """Fails for an import of what another room has inside."""

    type_name = "faces"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """See Contract."""
        found: list[dict[str, Any]] = []
        for importer in graph.modules:
            for imported in graph.find_modules_directly_imported_by(importer):
                if self._goes_around(importer, imported):
                    details = graph.get_import_details(importer=importer, imported=imported)
                    found += [dict(one) for one in details if not self._is_of_face(one)]
        found.sort(key=lambda one: (one["importer"], one["line_number"]))
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """See Contract."""
        for one in check.metadata["found"]:
            imported = one["imported"]
            output.print_error(
                f"{one['importer']}:{one['line_number']} imports {imported}: import it from "
                f"{self._room(imported)}, whose __init__.py names what others may use",
                bold=False,
            )

    def _goes_around(self, importer: str, imported: str) -> bool:
        if not imported.startswith("gymmesh_"):
            return False  # the stubs' modules are their faces
        room = self._room(imported)
        inside = imported == room or self._room(importer) == room
        return not inside and not _constants_of(imported).get("IS_FACE")

    def _is_of_face(self, found: Mapping[str, Any]) -> bool:
        """Whether it is a name of the room's face, which also has a module of that name."""
        room, _, name = found["imported"].rpartition(".")
        written: str = found["line_contents"].lstrip()
        return (
            room == self._room(found["imported"])
            and written.startswith(f"from {room} import ")
            and name in _constants_of(room).get("__all__", ())
        )

    def _room(self, module: str) -> str:
        parts = module.split(".")
        size = _ROOM
        while len(parts) > size and _constants_of(".".join(parts[:size])).get("MEMBERS_ARE_ROOMS"):
            size += 1
        return ".".join(parts[:size])
