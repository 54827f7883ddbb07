"""The backend of docs/how-to/sandbox-backends.md, as a package with an entry point would bring
it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.support.docs import ROOT, read_page

EXAMPLE: Final = ROOT / "examples" / "sandbox_backend" / "namespaces.py"
PAGE: Final = read_page(ROOT / "docs" / "how-to" / "sandbox-backends.md")


def install_own_backend(folder: Path) -> tuple[str, ...]:
    """Puts it into a folder; returns what a command line begins with, so that it is found there."""
    folder.mkdir()
    shutil.copy(EXAMPLE, folder)
    about = folder / "namespaces-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: namespaces\nVersion: 1\n")
    group, line = PAGE.of("toml")[0].text.splitlines()
    assert group == '[project.entry-points."gymmesh.sandboxes"]'
    entry = line.replace('"', "")
    (about / "entry_points.txt").write_text(f"[gymmesh.sandboxes]\n{entry}\n")
    return ("env", f"PYTHONPATH={folder}")
