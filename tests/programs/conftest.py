"""Programs for the tests that ask for one.

Opt-in (`make test-programs`): GYMMESH_TEST_PROGRAMS names them. Without it nothing is collected
here; with it, a program that is not installed is a failure, never a skip.
"""

from __future__ import annotations

import os

import pytest

PROGRAMS = os.environ.get("GYMMESH_TEST_PROGRAMS", "").split()

collect_ignore_glob = [] if PROGRAMS else ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", PROGRAMS)
