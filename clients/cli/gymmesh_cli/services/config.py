"""gym-cli config: check configurations, and show what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import json_option
from gymmesh_cli.terminal import DONE, NOTHING_DONE, report

if TYPE_CHECKING:
    from gymmesh_mesh import MeshConfig


@click.group()
def config() -> None:
    """Validate configurations. A configuration is a YAML file that describes a mesh."""


@config.command("validate", short_help="Validate a configuration without starting anything.")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one key of the configuration. Repeatable.",
)
@json_option
def validate(files: tuple[Path, ...], sets: tuple[str, ...], as_json: bool) -> int:
    """Validate a configuration: keys, values, names, and the class and options of each environment
    and agent.

    The command starts nothing and calls no endpoint. A later FILE overrides keys of an earlier
    FILE.

    \b
      gym-cli config validate mesh.yaml
      gym-cli config validate mesh.yaml --set models.policy.max_concurrency=8

    Exit code 0: the configuration is valid. 1: an environment or agent can't be created, or a name
    is unknown. 2: a file has invalid keys or values.
    """
    from gymmesh_mesh import MeshConfig
    from gymmesh_mesh.authoring.validating import problems_of, wrong_classes
    from gymmesh_runtime.config import ConfigError, load_config, merged_document, public_view

    try:
        found = load_config(files, sets, MeshConfig)
    except ConfigError as error:
        error.more += tuple(wrong_classes(merged_document(files, sets)))
        raise
    problems = problems_of(found)
    document = {"problems": problems, "configuration": public_view(found)}
    report(as_json, document, _lines(files, found, problems))
    return NOTHING_DONE if problems else DONE


def _lines(files: tuple[Path, ...], found: MeshConfig, problems: list[str]) -> Iterator[str]:
    named: dict[str, Any] = {
        "models": [f"{name} ({one.backend})" for name, one in found.models.items()],
        "environments": [f"{name} ({one.use})" for name, one in found.environments.items()],
        "agents": list(found.agents),
    }
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    yield f"{', '.join(map(str, files))}: {count if problems else 'all right'}"
    for kind, names in named.items():
        yield f"  {kind:<13} {', '.join(names) or 'none'}"
    default = found.defaults
    yield f"  {'defaults':<13} {default.environment}, {default.agent}, {default.model}"
    for problem in problems:
        yield f"  problem       {problem}"
