"""gym-cli: the commands, each imported only when it is used."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, NoReturn

import click

from gymmesh_cli.terminal import echo, logged, plain_errors

# name: where it is in this package, and its line in the list of commands.
_COMMANDS: Final = {
    "collect": ("collect.collect:collect", "Collect verified rollouts for tasks."),
    "run": ("collect.run:run", "Run one task and watch it live."),
    "runs": ("runs.runs:runs", "List, control and merge runs."),
    "up": ("services.up:up", "Start a mesh's services as processes."),
    "serve": ("services.serve:serve", "Serve one service of a mesh in this process."),
    "env": ("environments.env:env", "Create, test, audit and list environments."),
    "config": ("services.config:config", "Validate configurations without starting anything."),
    "models": ("services.models:models", "List models, download weights, try calls."),
    "sandbox": ("sandboxes.sandbox:sandbox", "Run programs in sandboxes, list and end sandboxes."),
    "conformance": (
        "services.conformance:conformance",
        "Test whether a server or collector follows gymmesh's contract.",
    ),
    "certs": ("services.certs:certs", "Create development certificates for TLS."),
    "xds": ("services.xds:xds", "Let gRPC clients in any language find services."),
    "data": ("data.data:data", "Check, generate and inspect task files and runs."),
    "export": ("stored.export:export", "Export rollouts to a trainer's format."),
    "import": ("stored.importing:import_", "Import tasks or rollouts from other formats."),
    "profile": (
        "stored.profile:profile",
        "Report statistics of rollouts: pass@k, lengths, tools, failures.",
    ),
    "compare": ("stored.compare:compare", "Compare runs of the same tasks with paired tests."),
    "show": ("stored.show:show", "Print a stored rollout as a conversation."),
    "reverify": (
        "stored.reverify:reverify",
        "Rescore stored rollouts without calls of the policy model.",
    ),
    "view": ("stored.view:view", "Browse rollouts in a local web page."),
}

_EPILOG: Final = """\b
Exit codes:
  0    done
  1    nothing could be done
  2    invalid usage or configuration
  3    done, but rollouts failed, rows were skipped, or the run ended early
  130  interrupted (Ctrl-C); finished rows are on disk

\b
First steps:
  gym-cli env init word_count
  gym-cli env test word_count/
  gym-cli collect word_count/ --model-url http://127.0.0.1:8000/v1 --model my-model
With the small model that gymmesh[local,math] installs (many answers are wrong):
  gym-cli run --prompt "What is 17 * 23?" --with expected_answer=391
"""


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is called."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with plain_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run a command; what it returns, if anything, is the exit code."""
        with plain_errors(), logged():
            sys.exit(super().invoke(ctx))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        place, line = _COMMANDS[cmd_name]
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"gymmesh_cli.{module}"), name)
        command.short_help = line
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"known commands: {', '.join(_COMMANDS)}"
            )
            ctx.fail(f"no such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _show_version(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            echo(f"gym-cli {version('gymmesh')}")
        except PackageNotFoundError:
            echo("gym-cli (not installed as a package)")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """Collect verified agent rollouts for RL training and evaluation.

    gym-cli reads tasks from a file of JSON lines, and writes scored rollouts to a file of JSON
    lines. Without a configuration, gym-cli runs all services itself, with a small language model.
    """


if __name__ == "__main__":
    cli()
