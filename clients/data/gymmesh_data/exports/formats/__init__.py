"""The formats, and the names of their files.

A module of this folder declares its formats in `MADE`. Only this declaration has a format's name,
purpose, suffixes and requirements: the command, its help, the checks and the documentation tests
read it.

`hf`, a folder with a card, combines several of these: hub.py.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gymmesh_client import UserError
from gymmesh_data.exports.format import Format

MEMBERS_ARE_ROOMS = True  # see tools/import_faces.py


def _declared() -> Iterator[Format]:
    for module in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{module.name}").MADE


FORMATS: Final[Mapping[str, Format]] = {
    form.name: form for form in sorted(_declared(), key=lambda form: form.name)
}
"""The formats by their names for `gym-cli export --format`."""

# What files of other formats are called.
_OTHERS: Final = frozenset(
    (
        *(".json", ".csv", ".tsv", ".txt", ".md", ".yaml", ".yml", ".html", ".xml", ".pkl"),
        *(".zst", ".gz", ".bz2", ".xz", ".zip", ".tar", ".feather", ".orc", ".db", ".sqlite"),
    )
)
_KNOWN: Final = frozenset(one for form in FORMATS.values() for one in form.suffixes) | _OTHERS


def refuse_suffix(output: Path, name: str) -> None:
    """Raise UserError for an output with the suffix of a different format. Unknown suffixes are
    accepted. `name`: the format's name; `hf` for a folder.
    """
    suffix = output.suffix.lower()
    form = FORMATS.get(name)
    if suffix not in _KNOWN or (form is not None and suffix in form.suffixes):
        return
    if form is None:
        raise UserError(f"{output}: --format {name} writes a folder. Use a name without {suffix}")
    others = [one for one in FORMATS.values() if suffix in one.suffixes]
    others.sort(key=lambda one: one.demonstrations is not form.demonstrations)
    other = others[0].name if others else ""
    hint = f", or choose --format {other}" if other and suffix != ".jsonl" else ""
    raise UserError(
        f"{output}: --format {name} writes {form.suffixes[0]} files. Use the name "
        f"{output.with_suffix(form.suffixes[0]).name}{hint}"
    )
