"""Draws the pictures of docs/how-to/view.md, from the rollouts of tests/view/rows.py.

make view-pictures
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gymmesh_view import find_sources  # noqa: E402 (the folder is named above)
from tests.view.browser import chromium, served  # noqa: E402
from tests.view.rows import write_scene  # noqa: E402

_PICTURES: Final = {
    # name: the place in the page, the theme, what to click first
    "table": ("#/", "light", ()),
    "conversation": ("#/rollout/ro-shop-8-0?at=32", "light", ()),
    "tokens": ("#/rollout/ro-sums-5-0", "dark", (".tokens button",)),
    "repeats": ("#/task/shop-4", "light", ()),
    "diff": ("#/diff/ro-sums-5-0/ro-sums-5-1", "dark", ()),
    "overview": ("#/overview", "light", ()),
    "dark": ("#/rollout/ro-debate-7-1?view=critic", "dark", ()),
}


def draw(folder: Path) -> list[Path]:
    """Draw all pictures into a folder."""
    drawn: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        rows = write_scene(Path(scratch) / "rollouts.jsonl", harm=False)
        sources = find_sources([rows]).sources
        with served(sources, Path(scratch) / "index.sqlite") as url:
            for name, (place, theme, clicks) in _PICTURES.items():
                context = browser.new_context(
                    viewport={"width": 1320, "height": 780}, color_scheme=theme
                )
                drawn.append(_draw(context.new_page(), url, place, clicks, folder / f"{name}.png"))
                context.close()
    return drawn


def _draw(page: Any, url: str, place: str, clicks: tuple[str, ...], path: Path) -> Path:
    page.goto(url)
    page.wait_for_selector("a.open")
    page.evaluate("place => { location.hash = place }", place)
    page.wait_for_timeout(700)
    for one in clicks:
        page.locator(one).first.click()
        page.wait_for_timeout(300)
    page.screenshot(path=str(path))
    return path


def main() -> None:
    """Draws them into docs/view."""
    folder = ROOT / "docs" / "view"
    folder.mkdir(exist_ok=True)
    for path in draw(folder):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
