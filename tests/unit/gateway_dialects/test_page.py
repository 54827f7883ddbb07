"""docs/reference/dialects.md has what the dialects leave out, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gymmesh_agent.gateway.dialects import DIALECTS
from gymmesh_agent.gateway.request import MAX_BODY_BYTES, MAX_ITEMS, MAX_LEVELS, MAX_TOOLS
from tests.unit.gateway_dialects.requests import LEFT_OUT

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "dialects.md").read_text(
    encoding="utf-8"
)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_left_out_is_on_the_page(dialect: str) -> None:
    section = TEXT.partition(f"### Left out of {dialect}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == list(LEFT_OUT[dialect].items())


def test_the_bounds_are_on_the_page() -> None:
    for bound in (MAX_BODY_BYTES, MAX_ITEMS, MAX_TOOLS, MAX_LEVELS):
        assert f"{bound:,}" in TEXT
