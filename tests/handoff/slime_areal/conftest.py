"""A tokenizer of each model family, in a folder, since slime and AReaL load tokenizers by path."""

from __future__ import annotations

import asyncio
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.handoff.slime_areal import slime_source
from tests.handoff.trainers.families import FAMILIES, Family

if slime_source.IS_HERE:
    sys.path.insert(0, slime_source.FOLDER)
# Without slime, test_slime_source.py says so.
collect_ignore = [] if slime_source.IS_HERE else ["test_slime.py"]

with warnings.catch_warnings():
    # At its import AReaL makes uvloop the whole process's, which warns since Python 3.12.
    warnings.simplefilter("ignore")
    import areal.trainer.ppo.actor  # noqa: F401

    asyncio.set_event_loop_policy(None)


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
