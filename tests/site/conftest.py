"""The built site, served on a port of its own, and a browser.

Opt-in (`make test-view`, which builds dist/docs if it is missing): GYMMESH_TEST_CHROMIUM names the
browser. Without it nothing is collected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.view.browser import chromium

SITE: Final = Path(__file__).resolve().parents[2] / "dist" / "docs"

collect_ignore_glob = [] if os.environ.get("GYMMESH_TEST_CHROMIUM") else ["test_*.py"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are not what the tests print."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address of the site, with a slash at the end."""
    assert (SITE / "index.html").is_file(), "dist/docs is missing; run make docs"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()
