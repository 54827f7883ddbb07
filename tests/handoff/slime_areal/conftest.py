"""A tokenizer of each model family, in a folder, since slime and AReaL load tokenizers by path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.handoff.trainers.families import FAMILIES, Family


@pytest.fixture(params=FAMILIES, ids=lambda one: one.name)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


@pytest.fixture
def folder(family: Family, tmp_path: Path) -> str:
    return saved(family, tmp_path)


@pytest.fixture
def qwen(tmp_path: Path) -> str:
    """A family's whose template drops earlier reasoning."""
    return saved(next(one for one in FAMILIES if one.name == "qwen3"), tmp_path)


def saved(family: Family, tmp_path: Path) -> str:
    tokenizer: Any = family.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path / "policy")
    return str(tmp_path / "policy")
