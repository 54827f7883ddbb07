"""A page for each command of gym-cli: its usage, help and options, as click has them (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from tools.docs.markdown import comment_text
from tools.docs.shelves import toctree

PROGRAM: Final = "gym-cli"


def command_pages(root: click.Group) -> dict[str, str]:
    """The pages by name: `index.md`, and one for each command right below `root`."""
    context = click.Context(root, info_name=PROGRAM)
    pages, rows = {}, []
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=context)
        pages[f"{name}.md"] = "\n".join([*_sections(command, below, 1)])
        line = _summary(root, context, name, command)
        rows.append(f"| [`{name}`]({name}.md) | {comment_text(line)} |")
    head = [
        f"# {PROGRAM}",
        "",
        "Every command with all its options. "
        f"`{PROGRAM} COMMAND --help` prints the same in a terminal.",
        "",
        "| command | what it does |",
        "|---|---|",
        *rows,
        "",
        *_options(root, context),
        *_epilog(root),
        toctree([f"{name}.md" for name in root.list_commands(context)]),
    ]
    return {"index.md": "\n".join(head)} | pages


def _summary(root: click.Group, context: click.Context, name: str, command: click.Command) -> str:
    """The command's line in the list of commands."""
    formatter = click.HelpFormatter(width=1000, max_width=1000)
    root.format_commands(context, formatter)
    for line in formatter.getvalue().splitlines():
        if line.split()[:1] == [name]:
            return line.strip().removeprefix(name).strip()
    return command.get_short_help_str(limit=200)


def _sections(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {context.command_path}"
    yield ""
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```"
    yield ""
    yield from help_text(command.help or "")
    yield from _options(command, context)
    yield from _epilog(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            child = click.Context(below, info_name=name, parent=context)
            yield from _sections(below, child, depth + 1)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"```{{program}} {context.command_path}\n```"
    yield ""
    for parameter in command.get_params(context):
        yield from _parameter(parameter, context)


def _epilog(command: click.Command) -> Iterator[str]:
    yield from help_text(command.epilog or "")


def help_text(text: str) -> Iterator[str]:
    r"""The lines of a help text; a paragraph behind `\b` keeps its lines."""
    text = text.partition("\f")[0].strip("\n")
    for paragraph in text.replace("\b\n", "\n\n\b\n").split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.lstrip(chr(8)).strip(chr(10))}\n```"
        elif paragraph.strip():
            yield comment_text(" ".join(paragraph.split()))
        yield ""


def _parameter(parameter: click.Parameter, context: click.Context) -> Iterator[str]:
    """An option, as Sphinx's directive has it; an argument without help is in the usage."""
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return
    record = parameter.get_help_record(context)
    assert record is not None
    names, words = record
    # click joins an option and its opposite by a slash; each gets its own name here.
    yield f"```{{option}} {names.replace(' / ', ', ')}"
    yield comment_text(_with_default(parameter, words, context))
    yield "```"
    yield ""


def _with_default(option: click.Option, words: str, context: click.Context) -> str:
    """The help; with the default, where click does not show it and there is one."""
    value: Any = option.get_default(context, call=False)
    shown = option.show_default or "[default:" in words or "default:" in words
    if shown or option.is_flag or value is None or callable(value) or option.multiple:
        return words
    if not isinstance(value, str | int | float) or value == "":
        return words
    return f"{words}  [default: {value}]"
