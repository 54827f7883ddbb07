"""The import-linter contract `faces`: a room is imported by its face.

A package's rooms are the modules and packages directly below it; a room's face is its
`__init__.py`. What a room has inside is imported by nobody else, so that it can be moved without
a look at the rest of the house.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_ROOM = 2  # a room's name has two parts: package.room


def _texts(option: Any) -> set[str]:
    """The values of an option, which is a descriptor until the contract is read."""
    return set(option or ())


@cache
def _names_of(room: str) -> frozenset[str]:
    """What the face of a room exports: its `__all__`."""
    spec = find_spec(room)
    if spec is None or spec.origin is None:
        return frozenset()
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(statement.value))
    return frozenset()


class FacesContract(Contract):
    """Fails for an import of what another room has inside.

    Options:
        kinds: packages whose members are rooms of their own, since they are found by name.
        apart: modules that are imported from their own file, since they load a library that the
            rest of their room does without.
        open_packages: packages whose rooms have no faces yet.
    """

    type_name = "faces"

    kinds = fields.SetField(subfield=fields.StringField(), required=False)
    apart = fields.SetField(subfield=fields.StringField(), required=False)
    open_packages = fields.SetField(subfield=fields.StringField(), required=False)

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
        package = imported.partition(".")[0]
        if package in _texts(self.open_packages) or imported in _texts(self.apart):
            return False
        room = self._room(imported)
        return imported != room and self._room(importer) != room

    def _is_of_face(self, found: Mapping[str, Any]) -> bool:
        """Whether it is a name of the room's face, which also has a module of that name."""
        room, _, name = found["imported"].rpartition(".")
        written: str = found["line_contents"].lstrip()
        return (
            room == self._room(found["imported"])
            and written.startswith(f"from {room} import ")
            and name in _names_of(room)
        )

    def _room(self, module: str) -> str:
        parts = module.split(".")
        size = _ROOM
        kinds = _texts(self.kinds)
        while len(parts) > size and ".".join(parts[:size]) in kinds:
            size += 1
        return ".".join(parts[:size])
