"""Computes a capacity model of large meshes, and simulates meshes too large for one machine.

    python -m tests.scale.scaling_sim [--write]

Prints the tables of docs/ideas/scaling.md. --write writes the tables to the page, between their
markers, and draws docs/pictures/scaling.svg. The inputs were measured by bench_scaling.py and by
the benches of docs/reference/performance.md. This program measures nothing: two runs print the
same.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tests.scale.report import write_section
from tests.scale.scaling.figures import Costs, Figures
from tests.scale.scaling.model import Model
from tests.scale.scaling.page import sections
from tests.scale.scaling.picture import draw

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "ideas" / "scaling.md"
PICTURE: Final = DOCS / "pictures" / "scaling.svg"


def made() -> tuple[dict[str, str], str]:
    """The page's sections, by name, and its picture."""
    figures, costs = Figures.load(), Costs.of_page()
    return sections(figures, costs), draw(Model.of(figures, costs))


def main() -> None:
    """Prints the sections, and writes them where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the tables to docs/ideas/scaling.md and draw docs/pictures/scaling.svg",
    )
    write = parser.parse_args().write
    texts, picture = made()
    for name, text in texts.items():
        print(f"{name}\n\n{text}\n")
        if write:
            write_section(name, text, PAGE)
    if write:
        PICTURE.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
