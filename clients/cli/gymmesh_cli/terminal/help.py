"""Help of commands with many options: their options in groups, each group with a title.

    @click.command(cls=GroupedCommand)
    @option("--concurrency", group=OptionGroup.RUNNING, type=int, help="…")

Without an `overview` the help lists every option, group by group. With one, `--help` fits a screen:
the overview, a line for each option with a `brief`, and the names of all options by group.
`--help GROUP` and `--help OPTION` explain a group or an option; `--help WORD` explains the options
whose help has the word. `--help all` lists everything.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any, Final

import click

from gymmesh_cli.terminal.writing import echo

_ALL: Final = "all"
_GAP: Final = "  "


class OptionGroup(Enum):
    """The groups in their order: the name that `--help` accepts, and the heading."""

    TASKS = ("tasks", "Tasks")
    ANSWERS = ("answers", "Right answers")
    PROGRAM = ("program", "Program and files")
    LIMITS = ("limits", "Network and limits")
    OUTPUT = ("output", "Output")
    RESUME = ("resume", "Resume")
    SELECT = ("select", "Which rollouts")
    FORMAT = ("format", "Records")
    MODELS = ("models", "Models, environments and agents")
    LISTEN = ("listen", "Addresses and registration")
    PROTOCOLS = ("protocols", "Other protocols")
    SECURITY = ("security", "TLS and tokens, for remote services")
    RUNNING = ("running", "Running")
    FAILURES = ("failures", "Retries, time limits and failures")
    TRAINING = ("training", "Hand groups to a trainer")
    MONITORING = ("monitoring", "Monitoring and reports")
    OTHER = ("other", "Other options")

    @property
    def key(self) -> str:
        """The name that `--help` accepts to explain the group."""
        return self.value[0]

    @property
    def title(self) -> str:
        """The group's heading."""
        return self.value[1]


class GroupedOption(click.Option):
    """An option that knows its group of the help.

    Attributes:
        group: where a `GroupedCommand` lists it.
        brief: its line in an overview. Empty: an overview only names it.
    """

    def __init__(
        self, *args: Any, group: OptionGroup = OptionGroup.OTHER, brief: str = "", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.brief = brief


def option(
    *names: str, group: OptionGroup, brief: str = "", **attributes: Any
) -> Callable[[Any], Any]:
    """`click.option` in a group; an overview explains it in the one line `brief`."""
    return click.option(*names, cls=GroupedOption, group=group, brief=brief, **attributes)


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups.

    Args:
        overview: the text of `--help` instead of the whole help. None: always the whole help.
    """

    def __init__(self, *args: Any, overview: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._overview = overview
        self._help_about: click.Option | None = None

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The help option. With an overview it accepts the name of a group or an option."""
        names = self.get_help_option_names(ctx)
        if self._overview is None or not names or not self.add_help_option:
            return super().get_help_option(ctx)
        if self._help_about is None:
            self._help_about = GroupedOption(
                [*names, "help_about"],
                is_flag=False,
                flag_value="",
                metavar="[GROUP|OPTION|all]",
                is_eager=True,
                expose_value=False,
                callback=self._show_help,
                help="Show this message, or explain a group, an option or all options.",
            )
        return self._help_about

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; `--help --retry` explains the option, as `--help retry` does."""
        return super().parse_args(ctx, self.plain_help(ctx, args))

    def plain_help(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with `--help --option` as `--help option`: click never reads a word that
        begins with a dash as the value of `--help`.
        """
        if self._overview is None:
            return args
        helps = self.get_help_option_names(ctx)
        options = {name for one in self.get_params(ctx) for name in one.opts}
        for place, (word, following) in enumerate(pairwise(args)):
            if word in helps and following.startswith("-") and following in options:
                return [*args[: place + 1], following.lstrip("-"), *args[place + 2 :]]
        return args

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview, or the whole help if there is no overview."""
        if self._overview is None:
            super().format_help(ctx, formatter)
            return
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(self._overview))
        with formatter.section("Often used"):
            formatter.write_dl(
                [
                    (_records(ctx, [one])[0][0], one.brief)
                    for one in self.get_params(ctx)
                    if isinstance(one, GroupedOption) and one.brief
                ]
            )
        groups = self._groups(ctx)
        room = formatter.width - max(len(group.key) for group in groups) - 2 * len(_GAP) - 2
        formatter.write_paragraph()
        formatter.write(
            f"All options. For explanations: {ctx.command_path} --help GROUP, or --help OPTION\n"
        )
        with formatter.indentation():
            formatter.write_dl(
                [(group.key, _packed(map(_name, those), room)) for group, those in groups.items()]
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every option, group by group."""
        for group, members in self._groups(ctx).items():
            with formatter.section(group.title):
                formatter.write_dl(_records(ctx, members))

    def _groups(self, ctx: click.Context) -> dict[OptionGroup, list[click.Option]]:
        """The options, by group; those without a group, such as click's own, are in OTHER."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        members = {group: [one for one in options if _group(one) is group] for group in OptionGroup}
        return {group: those for group, those in members.items() if those}

    def _show_help(self, ctx: click.Context, _parameter: click.Parameter, about: Any) -> None:
        """Show the requested help and exit. Raises UsageError for an unknown name."""
        if about is None or ctx.resilient_parsing:
            return
        echo(self._help_of(ctx, about) if about else self.get_help(ctx))
        ctx.exit()

    def _help_of(self, ctx: click.Context, about: str) -> str:
        formatter = ctx.make_formatter()
        if about == _ALL:
            super().format_help(ctx, formatter)
            return formatter.getvalue().rstrip("\n")
        groups = self._groups(ctx)
        chosen = {group: those for group, those in groups.items() if group.key == about}
        if not chosen:
            names = (about, f"-{about}", f"--{about}")
            chosen = _chosen(groups, lambda one: any(name in one.opts for name in names))
        if not any(chosen.values()):
            chosen = _chosen(groups, lambda one: about.lower() in _words(one))
        for group, those in chosen.items():
            if those:
                with formatter.section(group.title):
                    formatter.write_dl(_records(ctx, those))
        text = formatter.getvalue().strip("\n")
        if not text:
            options = (one for those in groups.values() for one in those)
            known = [group.key for group in groups]
            known += [_name(one).removeprefix("--") for one in options]
            near = difflib.get_close_matches(about, known, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise click.UsageError(
                f"--help {about}: no group or option has this name. {hint}The groups are "
                f"{', '.join(group.key for group in groups)}. --help {_ALL} explains all options.",
                ctx,
            )
        return text


def _chosen(
    groups: Mapping[OptionGroup, Sequence[click.Option]], wanted: Callable[[click.Option], bool]
) -> dict[OptionGroup, list[click.Option]]:
    return {group: [one for one in those if wanted(one)] for group, those in groups.items()}


def _words(one: click.Option) -> set[str]:
    """The words of an option's help and of its choices, without case."""
    choices = one.type.choices if isinstance(one.type, click.Choice) else ()
    return set(re.findall(r"[\w-]+", " ".join([one.help or "", *map(str, choices)]).lower()))


def _group(one: click.Option) -> OptionGroup:
    return one.group if isinstance(one, GroupedOption) else OptionGroup.OTHER


def _records(ctx: click.Context, options: Sequence[click.Option]) -> list[tuple[str, str]]:
    records = (one.get_help_record(ctx) for one in options)
    return [record for record in records if record is not None]


def _packed(names: Iterable[str], room: int) -> str:
    """Names in lines of at most `room` columns, which click does not wrap again."""
    lines = [""]
    for name in names:
        longer = f"{lines[-1]}{_GAP}{name}" if lines[-1] else name
        if len(longer) <= room:
            lines[-1] = longer
        else:
            lines.append(name)
    return "\b\n" + "\n".join(lines)


def _name(one: click.Option) -> str:
    return max(one.opts, key=len)
