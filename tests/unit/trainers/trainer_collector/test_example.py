"""The example of docs/how-to/training.md goes on wherever it is killed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import gymmesh
from tests.support.docs import ROOT
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.test_steps import ones

PAGE = ROOT / "docs" / "how-to" / "training.md"


class Killed(Exception):
    """The training ends here."""


def example(printed: Any) -> dict[str, Any]:
    """The example's names, with tasks and a policy of this test. It prints each group."""
    [code] = re.findall(r"```python\n(import asyncio\n.*?)```", PAGE.read_text(), re.DOTALL)[:1]
    names: dict[str, Any] = {"gymmesh": gymmesh, "shop": Sums, "tasks": rows(3), "print": printed}
    names["policy"] = ones().model
    exec(code.replace("asyncio.run(training())", ""), names)  # noqa: S102
    return names


@pytest.mark.parametrize("groups", range(3))
def test_a_training_goes_on_wherever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[Any] = []

    def kill(*words: Any) -> None:
        if len(said) == groups:
            raise Killed
        said.append(words)

    with pytest.raises(Killed):
        asyncio.run(example(kill)["training"]())
    assert Path("checkpoint.json").exists() == (groups > 0)
    asyncio.run(example(lambda *words: said.append(words))["training"]())
    assert [words[1] for words in said if words[0] == "step"] == [1, 2, 3]
