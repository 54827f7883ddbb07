"""The defaults of `gymmesh.collect` are those of `gym-cli collect`."""

from __future__ import annotations

from dataclasses import fields

from gymmesh_cli.collect.collect import collect as command
from gymmesh_client.collector import CollectOptions
from gymmesh_trainers.trainer_collector.settings import Settings
from tests.support.docs import ROOT


def test_defaults_are_those_of_the_command() -> None:
    # CollectOptions has what Settings leaves to it.
    python = {one.name: one.default for kind in (CollectOptions, Settings) for one in fields(kind)}
    # Without a number, that of a step; `many` has all of its tasks in flight.
    python["concurrency"] = Settings().in_step
    shown = {one.name: one.default for one in command.params if type(one.default) in (int, float)}
    assert shown.keys() >= {"concurrency", "max_attempts", "timeout_s", "patience_s", "max_alike"}
    differing = {name for name, default in shown.items() if python[name] != default}
    # On purpose: a group is what a trainer compares rewards within.
    assert differing == {"repeats"}
    page = (ROOT / "docs" / "how-to" / "training.md").read_text()
    stated = f"{Settings().repeats} (the default of `gym-cli collect` is {shown['repeats']})"
    assert f"`repeats` is {stated}" in page
