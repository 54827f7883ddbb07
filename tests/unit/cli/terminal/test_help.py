"""Help of commands whose options are in groups."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_cli.terminal import GroupedCommand, GroupedOption

_A_SCREEN = 50  # lines of 80 columns
_MANY = 15


def shown(*arguments: str, code: int = 0) -> str:
    """What gym-cli writes in a terminal of 80 columns."""
    done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "80"}, terminal_width=80)
    assert done.exit_code == code, done.output
    return done.output


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        if isinstance(one, click.Group):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


def options_of(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option)]


MANY = {name: one for name, one in commands() if len(options_of(one)) > _MANY}


def test_the_help_of_collect_fits_a_screen_and_names_every_option() -> None:
    text = shown("collect", "--help")
    lines = text.splitlines()
    assert len(lines) <= _A_SCREEN
    assert max(map(len, lines)) <= 81
    words = set(text.replace(",", " ").split())
    assert {max(one.opts, key=len) for one in options_of(MANY["collect"])} <= words


def test_all_options_are_explained_when_asked_for() -> None:
    text = " ".join(shown("collect", "--help", "all").split())
    for one in options_of(MANY["collect"]):
        assert one.help
        assert " ".join(one.help.split()[:4]) in text, one.opts
    assert "gym-cli runs merge" in text, "the examples are there, too"
    assert text == " ".join(shown("collect", "--help=all").split())
    assert text == " ".join(shown("collect", "-h", "all").split())


def test_a_group_is_explained() -> None:
    text = shown("collect", "--help", "resume")
    assert text.startswith("Resume:\n")
    assert "Tasks, configuration and" in text
    assert "--concurrency" not in text


def test_an_option_is_explained() -> None:
    text = shown("collect", "--help", "retry-share")
    assert text.startswith("Retries, time limits and failures:\n  --retry-share SHARE")
    assert "--max-attempts" not in text


@pytest.mark.parametrize(
    ("name", "plain"), [("-n", "num-repeats"), ("--retry-share", "retry-share"), ("--help", "help")]
)
def test_an_option_is_explained_by_its_name_with_dashes(name: str, plain: str) -> None:
    text = shown("collect", "--help", plain)
    assert shown("collect", "--help", name) == text
    assert shown("collect", "-h", name) == text


def test_an_unknown_word_with_dashes_is_no_name_for_help() -> None:
    assert "No such option" in shown("collect", "--help", "--nothing", code=2)


def test_help_behind_other_options_is_shown() -> None:
    assert shown("collect", "desk.py", "--limit", "3", "--help") == shown("collect", "--help")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("resum", "Did you mean resume?"), ("concurency", "Did you mean concurrency?")],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    text = " ".join(shown("collect", f"--help={name}", code=2).split())
    assert f"--help {name}: no group or option has this name" in text
    assert hint in text
    assert "The groups are tasks, output, resume, models" in text


@pytest.mark.parametrize("name", MANY)
def test_many_options_are_in_groups(name: str) -> None:
    command = MANY[name]
    assert isinstance(command, GroupedCommand)
    for one in options_of(command):
        assert isinstance(one, GroupedOption), one.opts
    text = shown(*name.split(), "--help", *(["all"] if name == "collect" else []))
    assert "\nOptions:\n" not in text
    assert text.count(":\n") >= 3


def test_every_option_says_what_it_does() -> None:
    for name, command in commands():
        for one in options_of(command):
            assert one.help or one.hidden, f"{name} {one.opts[0]}"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("n", "--num-repeats"),
        ("wandb", "--track"),
        ("prometheus", "--metrics-port"),
    ],
)
def test_help_of_a_short_name_or_of_a_word(asked: str, found: str) -> None:
    said = CliRunner().invoke(cli, ["collect", f"--help={asked}"])
    assert said.exit_code == 0, said.output
    assert found in said.output
