"""The request of a run, stored with the run, so that `collect --resume` needs only its output.

The journal and NAME.run.json have the arguments, the working folder, and the configuration as
written. Secrets are omitted, but the names of their environment variables are kept: a resumed run
reads credentials from the environment again.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import KEPT_CONFIGURATION
from gymmesh_cli.terminal import GroupedCommand

if TYPE_CHECKING:
    from gymmesh_cli.options import MeshOptions
    from gymmesh_mesh import MeshConfig

_ASKED: Final = "gymmesh_cli.asked"
# Options of one session, and those that the configuration holds.
_NOT_KEPT: Final = (
    *("output", "resume", "overwrite", "retry", "accept", "as_json", "quiet"),
    *("config", "sets", "model_url", "model", "model_api", "environment_place"),
)
_WRITTEN: Final = (str, bool, list, tuple)
_TASKS: Final = ("tasks", "config", "environment_place")
# What a shard was asked for, and the whole that is merged from shards was not.
_OF_SHARDS: Final = ("shard", "shard_rows", "compressed")
# Text that holds nothing but variables' values, perhaps behind the name of a scheme.
_VARIABLES: Final = re.compile(r"(?:(?:Bearer|Basic|Token) )?(?:\$\{\w+\})+")


class RemembersArguments(GroupedCommand):
    """A command that stores its arguments with its output, and can resume from the output alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self.plain_help(ctx, args)
        given = self._given(ctx, args)
        if given.get("resume") and not any(given.get(name) for name in _TASKS):
            args = self._resumed(ctx, args, given)
            given = self._given(ctx, args)
        ctx.meta[_ASKED] = list(self._written(given))
        return super().parse_args(ctx, args)

    def _given(self, ctx: click.Context, args: Sequence[str]) -> dict[str, Any]:
        """The options and arguments that are given, as they are written, by parameter."""
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        # click has an object of its own for an argument that is not given.
        return {name: value for name, value in found.items() if isinstance(value, _WRITTEN)}

    def _resumed(self, ctx: click.Context, args: list[str], given: Mapping[str, Any]) -> list[str]:
        """The arguments of the run that is resumed, except those given anew, and then these."""
        from gymmesh_client.log import latest_session
        from gymmesh_client.output_files import OutputFiles

        output = next(one for one in self.params if one.name == "output")
        rows = Path(given.get("output") or str(output.default))
        session = latest_session(OutputFiles(rows)) or {}
        asked = session.get("asked") or {}
        if not asked:
            return args
        ctx.meta[KEPT_CONFIGURATION] = asked.get("configuration") or {}
        here, folder = Path.cwd(), Path(str(asked.get("folder") or "."))
        kept = self._given(ctx, [str(one) for one in asked.get("arguments") or ()])
        # An option that can be repeated would otherwise have the old values, too.
        for name in (*given, *(_OF_SHARDS if session.get("merged") else ())):
            kept.pop(name, None)
        whole = [*self._written(kept), *args]
        if folder.is_dir() and not folder.samefile(here):
            os.chdir(folder)  # paths of the run are seen from there
            whole += ["--output", str((here / rows).resolve())]
        return whole

    def _written(self, given: Mapping[str, Any]) -> Iterator[str]:
        """The arguments to keep, as the command line has them."""
        for parameter in self.params:
            name = parameter.name or ""
            if name not in given or name in _NOT_KEPT or not isinstance(parameter, click.Option):
                continue
            option, value = parameter.opts[0], given[name]
            if parameter.is_flag:
                yield from [option] if value else []
            else:
                for one in value if parameter.multiple else [value]:
                    yield from (option, str(one))


def asked_for(mesh: MeshOptions, config: MeshConfig | None) -> dict[str, Any]:
    """The request of the current command, to be stored with its run. Raises ConfigError."""
    document = {} if config is None else mesh.document(config)
    return {
        "arguments": click.get_current_context().meta[_ASKED],
        "folder": os.getcwd(),
        "configuration": _without_secrets(document),
    }


def resume_command(output: str, failed: int, not_finished: int) -> str:
    """The command that resumes a run, to be pasted into a shell; empty when nothing failed and
    nothing is left.
    """
    if not failed and not_finished <= 0:
        return ""
    retry = ["--retry", "failed"] if failed else []
    return shlex.join(["gym-cli", "collect", "--resume", "--output", output, *retry])


def _without_secrets(document: Any) -> Any:
    """The document with `***` for each secret that is written out."""
    from gymmesh_client.run_file import without_secrets

    masked = without_secrets(document)
    return _with_variables(document, masked)


def _with_variables(given: Any, masked: Any) -> Any:
    """The masked values, with those back that only name variables."""
    if isinstance(given, dict):
        return {str(key): _with_variables(given[key], masked[str(key)]) for key in given}
    if isinstance(given, list):
        pairs = zip(given, masked, strict=True) if isinstance(masked, list) else ()
        return [_with_variables(one, other) for one, other in pairs] if pairs else masked
    return given if isinstance(given, str) and _VARIABLES.fullmatch(given) else masked
