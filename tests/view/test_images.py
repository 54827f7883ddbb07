"""A rollout with images in a browser: each is sent once and shown wherever it was seen."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import completed_row, fold
from gymmesh_responses import item_from_json, media_url
from gymmesh_view import Filters, Sort, find_sources, write_bundle
from tests.support.images import png
from tests.support.rollouts import answer, completed, make_events, make_task, verdict
from tests.view.browser import Requests, served

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.harmed = true'/>"
HTML = b"<!doctype html><script>window.harmed = true</script>"
#: By name: the type that a medium says it has, and its bytes.
MEDIA = {
    "one": ("image/png", png(1)),
    "two": ("image/png", png(2)),
    "svg": ("image/svg+xml", SVG),
    "svg as png": ("image/png", SVG),
    "html as gif": ("image/gif", HTML),
    "html": ("text/html", HTML),
    "more than a type": ("image/png;base64,AA==\"onerror='harm()'", png(1)),
}
HARM = [name for name in MEDIA if name not in ("one", "two")]
STEPS = 20


def shown(*names: str) -> Any:
    parts = [{"type": "input_image", "image_url": media_url(name)} for name in names]
    return item_from_json({"type": "message", "role": "user", "content": parts})


def rollout() -> bytes:
    """Each call sees the same image again; the last one what means harm."""
    bodies = []
    for name, (kind, data) in MEDIA.items():
        added = pb.RolloutEvent(ignorable=True)
        medium = added.media_added.media
        medium.digest, medium.media_type, medium.data = name, kind, data
        bodies.append(added)
    for step in range(STEPS):
        event = answer(f"step {step}", f"c{step}")
        call = event.model_call_completed
        call.parent_call_id = f"c{step - 1}" if step else ""
        call.context_items.append(shown("one", "two") if step % 2 else shown("one"))
        bodies.append(event)
    bodies[-1].model_call_completed.context_items.append(shown(*HARM))
    events = make_events("ro-images", 1, *bodies, verdict(1.0), completed(), task=make_task())
    row = completed_row(make_task(), fold(events, "ro-images", task_id="t-1"))
    return json.dumps(row).encode() + b"\n"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "rollouts.jsonl"
    path.write_bytes(rollout())
    return path


@pytest.fixture(params=["served", "bundle"])
def place(
    request: pytest.FixtureRequest, pictures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The page's address, from a server or as a static site."""
    sources = find_sources([pictures]).sources
    if request.param == "served":
        with served(sources, tmp_path_factory.mktemp("index") / "index.sqlite") as url:
            yield url
        return
    folder = tmp_path_factory.mktemp("site") / "site"
    index = tmp_path_factory.mktemp("index") / "index.sqlite"
    write_bundle(sources, folder, Filters(), Sort(), limit=10, index=index)
    yield (folder / "index.html").as_uri()


def test_images_are_shown_and_nothing_else_of_them(browser: Any, place: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    requests = Requests(page)
    page.goto(place)
    page.wait_for_selector("a.open")
    page.goto(page.url.partition("#")[0] + "#/rollout/ro-images")
    page.wait_for_selector("img.image")
    images = page.locator("img.image")
    assert images.count() == STEPS + STEPS // 2
    for at in range(images.count()):
        images.nth(at).scroll_into_view_if_needed()
    page.wait_for_function(
        "[...document.querySelectorAll('img.image')].every(one => one.naturalWidth === 8)"
    )
    assert {images.nth(at).get_attribute("alt") for at in range(2)} == {"PNG image"}
    urls = page.evaluate("[...document.querySelectorAll('img')].map(one => one.src)")
    held = {f"data:image/png;base64,{base64.b64encode(png(one)).decode()}" for one in (1, 2)}
    assert set(urls) == held
    assert page.locator("p.note").count() == len(HARM)
    assert page.locator("main svg, main iframe, main object, main embed").count() == 0
    assert page.evaluate("window.harmed") is None
    assert requests.errors == []
    base = place.partition("?")[0].rpartition("/")[0]
    assert requests.elsewhere(base) == []
    context.close()
