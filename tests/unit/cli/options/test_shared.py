"""An option that several commands have is declared once, so that it cannot come to differ."""

from __future__ import annotations

import click
import pytest

from gymmesh_cli import main


def options_of(*words: str) -> dict[str, click.Option]:
    """The options of a command, by their parameter."""
    context = click.Context(main.cli)
    command: click.Command | None = main.cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(context, word)
    assert command is not None
    return {str(one.name): one for one in command.params if isinstance(one, click.Option)}


@pytest.mark.parametrize(
    ("names", "one", "another"),
    [
        (("host", "insecure", "advertise_host"), ("up",), ("serve",)),
        (("tasks_file",), ("env", "test"), ("env", "mcp")),
    ],
)
def test_they_are_the_same(
    names: tuple[str, ...], one: tuple[str, ...], another: tuple[str, ...]
) -> None:
    here, there = options_of(*one), options_of(*another)
    for name in names:
        assert here[name].to_info_dict() == there[name].to_info_dict()
