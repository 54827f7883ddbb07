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
from tests.view.desk import TASK, write_desk, write_tokenizer  # noqa: E402
from tests.view.rows import write_scene  # noqa: E402

_PICTURES: Final = {
    # name: which rollouts, the place in the page, the theme, what to click first
    "table": ("one", "#/", "light", ()),
    "conversation": ("one", "#/rollout/ro-shop-8-0?at=32", "light", ()),
    "errors": ("one", f"#/rollout/ro-{TASK}-1?at=97", "light", ()),
    "tokens": ("one", f"#/rollout/ro-{TASK}-0?at=96", "dark", ("main .tokens button >> nth=-1",)),
    "repeats": ("two", "#/task/sums-1", "light", ()),
    "diff": ("one", "#/diff/ro-sums-5-0/ro-sums-5-1", "dark", ()),
    "overview": ("one", "#/overview", "light", ()),
    "dark": ("one", "#/rollout/ro-debate-7-1?view=critic", "dark", ()),
    "phone": ("one", "#/", "light", ()),
}
_SIZE: Final = {"width": 1320, "height": 780}
_PHONE: Final = {"width": 420, "height": 780}


def draw(folder: Path) -> list[Path]:
    """Draw all pictures into a folder."""
    drawn: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        for scene, write in (("one", _one_run), ("two", _two_runs)):
            rows = Path(scratch) / scene
            rows.mkdir()
            write(rows)
            with served(find_sources([rows]).sources, Path(scratch) / f"{scene}.sqlite") as url:
                for name, (of, place, theme, clicks) in _PICTURES.items():
                    if of != scene:
                        continue
                    context = browser.new_context(
                        viewport=_PHONE if name == "phone" else _SIZE, color_scheme=theme
                    )
                    path = folder / f"{name}.png"
                    drawn.append(_draw(context.new_page(), url, place, clicks, path))
                    context.close()
    return drawn


def _one_run(folder: Path) -> None:
    """A file of rollouts, with the vocabulary of some beside it."""
    rows = write_scene(folder / "rollouts.jsonl", harm=False)
    with rows.open("ab") as file:
        file.write(write_desk(folder / "desk").read_bytes())
    write_tokenizer(folder / "tokenizer.json")


def _two_runs(folder: Path) -> None:
    for name, tasks in (("monday", 4), ("tuesday", 5)):
        (folder / name).mkdir()
        write_scene(folder / name / "rollouts.jsonl", tasks, harm=False)


def _draw(page: Any, url: str, place: str, clicks: tuple[str, ...], path: Path) -> Path:
    page.set_default_timeout(120_000)
    page.goto(url)
    page.wait_for_selector("a.open")
    page.evaluate("place => { location.hash = place }", place)
    page.wait_for_timeout(700)
    page.wait_for_function("!document.body.innerText.includes('Loading …')")
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
