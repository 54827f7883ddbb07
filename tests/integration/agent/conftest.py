"""The paths from a caller to a servicer: in one process, plain gRPC, and the mux."""

from __future__ import annotations

from typing import Final

import pytest

PATHS: Final = ("direct", "grpc", "mux")


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)
