"""The site in a browser: search finds pages, options can be copied, pages fit a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.view.browser import Requests

Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, site: str) -> Iterator[Open]:
    """Opens a page of the site. In the end nothing has gone wrong, or came from elsewhere."""
    contexts: list[tuple[Any, Requests]] = []

    def at(path: str, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 880}, **options)
        page = context.new_page()
        page.set_default_timeout(120_000)
        contexts.append((context, Requests(page)))
        page.goto(site + path)
        return page

    yield at
    for context, requests in contexts:
        assert requests.errors == []
        assert requests.elsewhere(site) == []
        context.close()


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("resume", "how-to/collecting.html"),
        ("staleness", "how-to/runs.html"),
        ("SharedGroups", "how-to/ranks.html"),
        ("VERIFIER_TIMEOUT", "reference/errors.html"),
        ("max-attempts", "reference/cli/collect.html"),
        ("StreamGroups", "reference/contract/run.html"),
    ],
)
def test_words_typed_into_the_search_box_lead_to_the_page(
    opened: Open, words: str, target: str
) -> None:
    page = opened("index.html")
    page.locator("input[name=q]:visible").fill(words)
    page.locator("input[name=q]:visible").press("Enter")
    found = page.locator(f'#search-results li a[href^="{target}"]').first
    found.wait_for()
    found.click()
    page.wait_for_url(f"**/{target}*")
    text = page.locator("article").inner_text()
    assert words.lower() in text.lower()


def test_words_that_no_page_has_are_reported(opened: Open) -> None:
    page = opened("search.html?q=xyzzyplugh")
    page.locator("#search-results .search-summary").wait_for()
    assert "did not match any documents" in page.locator("#search-results").inner_text()
    assert page.locator("#search-results li").count() == 0


def test_options_in_help_texts_can_be_copied(opened: Open) -> None:
    page = opened("reference/cli/runs.html")
    assert page.locator("code", has_text="gym-cli collect --resume").count() > 0
    assert not re.search("\u2013[a-z]", page.locator("article").inner_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1280, 1920])
@pytest.mark.parametrize(
    "path", ["index.html", "start/first-week.html", "how-to/collecting.html", "reference/rows.html"]
)
def test_a_page_is_as_wide_as_the_window(opened: Open, path: str, width: int, scheme: str) -> None:
    page = opened(path, width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colours = page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    brightness = [sum(map(int, one[4:-1].split(","))) for one in colours]
    assert (brightness[0] < brightness[1]) == (scheme == "light")
