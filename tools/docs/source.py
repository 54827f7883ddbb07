"""Puts everything into one folder of Markdown, which Sphinx reads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from tools.docs.markdown import relative, rewritten
from tools.docs.shelves import DocsError, Shelf, pages_below, read_shelves, title_of, toctree

#: Pages that are not under docs/, and their place in the site.
PLACED: Final = {
    "CHANGELOG.md": "changelog.md",
    "proto/gymmesh/TRANSPORT.md": "reference/contract/transport.md",
    "clients/go/README.md": "reference/clients/go.md",
    "clients/java/README.md": "reference/clients/java.md",
    "clients/rust/README.md": "reference/clients/rust.md",
    "clients/typescript/README.md": "reference/clients/typescript.md",
}
_ENVIRONMENTS: Final = "reference/environments"
_LANGUAGES: Final = {".py": "python", ".go": "go", ".toml": "toml", ".yaml": "yaml"}
_INDEX: Final = "index.md"


@dataclass
class Source:
    """The site's pages and pictures while they are put together.

    Attributes:
        root: the repository.
        texts: the pages, by their place in the site.
        files: pictures and other files, likewise.
    """

    root: Path
    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def add_pages(self) -> None:
        """Adds the pages and pictures under docs/, and those of PLACED.

        Raises:
            DocsError: a link leads nowhere.
        """
        docs = self.root / "docs"
        for path in sorted(docs.rglob("*")):
            place = path.relative_to(docs).as_posix()
            if path.suffix == ".md":
                self._add(f"docs/{place}", place)
            elif path.is_file():
                self.files[place] = path.read_bytes()
        for name, place in PLACED.items():
            self._add(name, place)

    def add_made(self, folder: str, pages: Mapping[str, str]) -> None:
        """Adds pages that were made from the code."""
        self.texts |= {f"{folder}/{name}": text for name, text in pages.items()}

    def add_contents(self) -> None:
        """Adds the tables of contents, which Sphinx shows at the side.

        Raises:
            DocsError: docs/index.md does not list each page once.
        """
        shelves = read_shelves((self.root / "docs" / _INDEX).read_text(encoding="utf-8"))
        listed = {page for shelf in shelves for page in shelf.pages}
        environments = [page for page in self.texts if page.startswith(f"{_ENVIRONMENTS}/")]
        below = pages_below(self.root / "docs")
        missing = sorted({*below} - listed - {*environments, _INDEX})
        if missing:
            raise DocsError(f"docs/index.md does not list {', '.join(missing)}")
        names = [PurePosixPath(page).name for page in environments]
        self.texts[f"{_ENVIRONMENTS}/{_INDEX}"] = (
            "# Ready environments\n\nEach environment that comes with gymmesh, with its options. "
            f"[Environments](../../how-to/environments.md) compares them.\n\n{toctree(names)}\n\n"
            + "".join(
                f"- [{self._title(page)}]({PurePosixPath(page).name})\n" for page in environments
            )
        )
        clients = [place for place in PLACED.values() if place.startswith("reference/clients/")]
        self.texts[f"reference/clients/{_INDEX}"] = (
            "# Clients in other languages\n\n"
            + "".join(f"- [{self._title(one)}]({PurePosixPath(one).name})\n" for one in clients)
            + f"\n{toctree([PurePosixPath(one).name for one in clients])}"
        )
        self.texts[_INDEX] += "\n" + "\n".join(map(self._contents, shelves))
        self.texts[_INDEX] += toctree(["changelog.md"], "Project")

    def write(self, folder: Path) -> None:
        """Writes it into `folder`; files that have not changed are not touched."""
        wanted = {name: text.encode() for name, text in self.texts.items()} | self.files
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                shutil.rmtree(path)
        for name, data in wanted.items():
            target = folder / name
            if target.exists() and target.read_bytes() == data:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    def _contents(self, shelf: Shelf) -> str:
        pages = [*shelf.pages]
        if shelf.title == "Reference":
            made = ("cli", "api", "contract", "environments", "clients")
            pages += [f"reference/{name}/{_INDEX}" for name in made]
        return toctree(pages, shelf.title)

    def _title(self, place: str) -> str:
        return title_of(self.texts[place])

    def _add(self, name: str, place: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        self.texts[place] = rewritten(text, lambda link: self._target(link, name, place))

    def _target(self, link: str, name: str, place: str) -> str | None:
        """The target in the site of a link in the file `name`, which becomes the page `place`."""
        path, mark, anchor = link.partition("#")
        found = (self.root / name).parent.joinpath(path).resolve()
        if not found.exists():
            raise DocsError(f"{name}: there is no {path}")
        inside = found.relative_to(self.root).as_posix()
        if found.is_dir():
            return None
        if inside == "README.md":
            target, mark, anchor = _INDEX, "", ""
        elif inside in PLACED:
            target = PLACED[inside]
        elif inside.startswith("docs/"):
            target = inside.removeprefix("docs/")
        elif found.suffix == ".proto":
            noun = PurePosixPath(inside).parts[2]
            target = f"reference/contract/{noun}.md"
        else:
            target = self._add_code(inside, found)
        return relative(target, place) + mark + anchor

    def _add_code(self, inside: str, path: Path) -> str:
        """Adds a page that shows a file of the repository; gives its place."""
        place = f"files/{inside}.md"
        language = _LANGUAGES.get(path.suffix, "text")
        text = path.read_text(encoding="utf-8").rstrip("\n")
        self.texts[place] = f"---\norphan: true\n---\n# {inside}\n\n````{language}\n{text}\n````\n"
        return place
