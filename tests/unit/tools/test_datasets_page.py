"""The catalogue of known data sets is what its recipes make."""

from __future__ import annotations

from gymmesh_data.imports.datasets import recipes
from tools.datasets import PAGE, main, page_text
from tools.protos import ROOT


def test_what_is_committed_is_what_is_made() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page_text()
    assert main(["--check"]) == 0


def test_the_page_has_every_data_set() -> None:
    page = page_text()
    for recipe in recipes():
        assert f"| `{recipe.name}` | {recipe.title}: " in page
        assert f"\n### {recipe.title}\n" in page
