"""The `collect` programs of the clients in other languages, against a mesh of ours.

Opt-in (`make test-clients`, which builds them first): GYMMESH_TEST_CLIENTS names the languages,
separated by spaces. Without it nothing is collected here; with it, a program that is not there is a
failure, never a skip.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

LANGUAGES: Final = tuple(os.environ.get("GYMMESH_TEST_CLIENTS", "").split())

collect_ignore_glob = [] if LANGUAGES else ["test_*.py"]
#: What takes minutes is collected only where it is asked for.
collect_ignore = [] if os.environ.get("GYMMESH_TEST_SLOW") else ["test_keepalive.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(600), append=False)
