"""The public faces: sorted, and true."""

from __future__ import annotations

import importlib
import re

import pytest
from click.testing import CliRunner

from gymmesh_cli.stored.export import export
from gymmesh_data import EXPORTS, FORMATS


@pytest.mark.parametrize(
    "name", ["gymmesh_data", "gymmesh_data.exports", "gymmesh_data.reverify", "gymmesh_data.track"]
)
def test_a_face_is_sorted_and_there(name: str) -> None:
    face = importlib.import_module(name)
    names = face.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(face, one) for one in names)


def test_the_command_has_every_format() -> None:
    said = CliRunner().invoke(export, ["--formats"]).output
    listed = re.findall(r"^([a-z-]+)  +\S", said, re.MULTILINE)
    assert listed == [*FORMATS, "hf"] == list(EXPORTS)
    refused = CliRunner().invoke(export, ["x.jsonl", "-f", "nothing", "-o", "y"])
    assert refused.exit_code == 2
    assert all(f"'{name}'" in refused.output for name in EXPORTS)


def test_a_format_says_who_it_is() -> None:
    for name, form in FORMATS.items():
        assert form.name == name
        assert form.about
        made = (form.of_rollout, form.of_pair, form.of_task)
        assert sum(one is not None for one in made) == 1
