"""A browser and a served page for the tests of this folder.

Opt-in (`make test-view`): GYMMESH_TEST_CHROMIUM names the browser. Without it nothing is collected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh_view import find_sources
from tests.view.browser import Requests, chromium, served
from tests.view.rows import write_scene

collect_ignore_glob = [] if os.environ.get("GYMMESH_TEST_CHROMIUM") else ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rollouts to look at, among them some that mean harm."""
    return write_scene(tmp_path_factory.mktemp("rows") / "rollouts.jsonl", 40)


@pytest.fixture(scope="session")
def address(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page's address, token included."""
    index = tmp_path_factory.mktemp("index") / "index.sqlite"
    with served(find_sources([rows]).sources, index) as url:
        yield url


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that has been entered and shows the table; at the end nothing has gone wrong in it."""
    context = browser.new_context(viewport={"width": 1320, "height": 900})
    found = context.new_page()
    found.set_default_timeout(120_000)
    requests = Requests(found)
    found.goto(address)
    found.wait_for_selector("a.open")
    yield found
    base = address.partition("?")[0]
    assert requests.errors == []
    assert requests.elsewhere(base) == []
    assert found.evaluate("window.harmed") is None
    context.close()
