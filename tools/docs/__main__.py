"""Builds the site: docs/ and pages made from the code, through Sphinx; then checks its links.

Each build begins anew: Sphinx warns of a page only when it reads it, so that a second build of
kept results would pass where the first one failed.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import click

from tools.docs.commands import command_pages
from tools.docs.contract import contract_pages, described
from tools.docs.faces import face_pages
from tools.docs.links import check_links
from tools.docs.shelves import DocsError
from tools.docs.source import Source
from tools.protos import ROOT, ProtocError

_CACHE: Final = ROOT / ".cache" / "docs"
SITE: Final = ROOT / "dist" / "docs"
_FACE: Final = "gymmesh"
_OTHERS: Final = ("gymmesh_client", "gymmesh_trainers", "gymmesh_data", "gymmesh_mesh")


def gathered(root: Path = ROOT) -> Source:
    """Everything that Sphinx reads.

    Raises:
        DocsError: docs/ has a link that leads nowhere, or a page that the index does not list.
        ProtocError: protoc refused the contract.
    """
    cli = importlib.import_module("gymmesh_cli.main").cli
    assert isinstance(cli, click.Group)
    others = [importlib.import_module(name) for name in _OTHERS]
    source = Source(root)
    source.add_pages()
    source.add_made("reference/cli", command_pages(cli))
    source.add_made("reference/api", face_pages(importlib.import_module(_FACE), others))
    source.add_made("reference/contract", contract_pages(described()))
    source.add_contents()
    return source


def build() -> int:
    """Builds the site and checks its links; returns the exit status (0 done, 1 not)."""
    began = time.monotonic()
    shutil.rmtree(_CACHE / "doctrees", ignore_errors=True)
    gathered().write(_CACHE / "source")
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet"]
    command += ["--fail-on-warning", "--keep-going", "--jobs", "auto"]
    command += ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(_CACHE / "doctrees")]
    done = subprocess.run([*command, str(_CACHE / "source"), str(SITE)], cwd=ROOT, check=False)
    if done.returncode:
        return 1
    found = check_links(SITE)
    for problem in found.problems:
        print(f"docs: {problem}", file=sys.stderr)
    if found.problems:
        return 1
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file())
    print(
        f"docs: {found.pages} pages, {size / 1e6:.1f} MB, {found.links} links checked "
        f"({found.outside} to other sites not followed), {time.monotonic() - began:.0f} s: "
        f"{(SITE / 'index.html').relative_to(ROOT)}"
    )
    return 0


def main() -> int:
    """Runs the script; returns its exit status."""
    try:
        return build()
    except (DocsError, ProtocError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
