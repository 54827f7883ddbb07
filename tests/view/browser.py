"""A browser, and a page of gym-cli view that is served in a thread beside it.

Playwright's own client is synchronous here and the server is asyncio's, so each has a thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gymmesh_view import ViewSource, viewing

FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_WAIT_S: Final = 60.0


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's; GYMMESH_TEST_CHROMIUM is its program."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ["GYMMESH_TEST_CHROMIUM"], args=list(FLAGS)
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(sources: Sequence[ViewSource], index: Path) -> Iterator[str]:
    """The address of a page, token included, for as long as the context lasts."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    urls: list[str] = []
    ready = threading.Event()

    async def serve() -> None:
        try:
            async with viewing(sources, index=index) as server:
                urls.append(server.url)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(_WAIT_S)
        assert urls, "the server did not start"
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_WAIT_S)
        loop.close()


class Requests:
    """What a page asked for, and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.urls: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def elsewhere(self, base: str) -> list[str]:
        """What it asked others for."""
        return [one for one in self.urls if not one.startswith((base, "data:"))]


def until(found: Callable[[], bool], page: Any) -> None:
    """Wait for something that the page comes to."""
    for _ in range(600):
        if found():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page did not come to it")
