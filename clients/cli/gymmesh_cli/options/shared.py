"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.groups import F, grouped, together
from gymmesh_cli.options.kept_configuration import KEPT_CONFIGURATION, refuse_masked

if TYPE_CHECKING:
    from gymmesh_client.output import RetryChoice
    from gymmesh_client.output_files import OutputFiles
    from gymmesh_mesh import MeshConfig

FILE: Final = click.Path(path_type=Path, dir_okay=False)
_CONFIG_HELP: Final = (
    "A YAML file that describes the mesh. Give several and they are merged left to right. "
    "${NAME} and ${NAME:-default} read environment variables."
)
_SET_HELP: Final = "Override one key, such as --set agents.tool_loop.max_steps=4. Repeatable."


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """What the user said about the mesh."""

    config: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()
    model_url: str | None = None
    model: str | None = None
    model_api: str = "auto"
    environment: str | None = None
    environment_place: str | None = None
    kept: dict[str, Any] | None = None  # of a run that is resumed, below all of these

    def load(self) -> MeshConfig:
        """The configuration; an empty one is a whole mesh with a small model of its own.

        Raises:
            ConfigError: anything wrong with it.
        """
        from gymmesh_mesh import MeshConfig
        from gymmesh_runtime.config import ConfigError, load_config

        if self.kept:
            from gymmesh_runtime.config import merged_document

            refuse_masked(merged_document(self.config, self.sets, self.kept))
        config = load_config(self.config, self.sets, MeshConfig, under=self.kept)
        sets = self.sets
        for flag, overrides in self._overrides(config.defaults.model):
            sets = (*sets, *overrides)
            try:
                config = load_config(self.config, sets, MeshConfig, under=self.kept)
            except ConfigError as error:
                # It is the flag that is wrong, and not the key that it stands for.
                raise ConfigError(error.problem, source=flag) from None
        if self.environment is not None and self.environment not in config.environments:
            from gymmesh_runtime.config import nearest

            raise ConfigError(
                f"there is no environment {self.environment!r}; "
                f"{nearest(self.environment, config.environments)}",
                source=f"--env {self.environment}",
            )
        if self.environment_place is None:
            return config
        from gymmesh_mesh.authoring.placing import with_environment

        return with_environment(config, self.environment_place)

    def document(self, config: MeshConfig) -> dict[str, Any]:
        """What `load` read `config` from, as JSON values that the loader reads again: with
        `${NAME}` as it was written. Raises ConfigError.
        """
        from gymmesh_runtime.config import merged_document

        policy = merged_document(self.config, self.sets, self.kept).get("defaults") or {}
        flags = self._overrides(policy.get("model") or config.defaults.model)
        sets = (*self.sets, *(one for _, overrides in flags for one in overrides))
        document = merged_document(self.config, sets, self.kept)
        if self.environment_place is not None:
            name = config.defaults.environment
            # Those that nobody wrote are the loader's, which it adds only where it finds none.
            written = document.get("environments") or {}
            environments = {one: written.get(one) or {} for one in config.environments}
            placed = {"use": _as_written(config.environments[name].use)}
            of_name = self.environment_place == name  # which the document may say with `${…}`
            environments[name] = (
                placed | environments[name] if of_name else environments[name] | placed
            )
            document["environments"] = environments
            document["defaults"] = {**(document.get("defaults") or {}), "environment": name}
        return document

    def _overrides(self, policy: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The flags that stand for keys of the configuration, each with these."""
        at = f'models."{policy}"'
        if self.model_url is not None:
            api = "chat" if self.model_api == "auto" else self.model_api
            url = _quoted(self.model_url)
            yield f"--model-url {self.model_url}", (f"{at}.backend={api}", f"{at}.url={url}")
        if self.model is not None:
            yield f"--model {self.model}", (f"{at}.model={_quoted(self.model)}",)
        if self.environment is not None:
            name = _quoted(self.environment)
            yield f"--env {self.environment}", (f"defaults.environment={name}",)

    def refuse_model_flags(self) -> None:
        """Raise a usage error when a flag is given that a mesh elsewhere cannot follow."""
        if self.environment_place is not None:
            raise click.UsageError(
                f"{self.environment_place}: an environment of your own is for a mesh inside this "
                "command; with --agent, name an environment of the mesh there with --env"
            )
        for flag, value in (("--model-url", self.model_url), ("--model", self.model)):
            if value is not None:
                raise click.UsageError(
                    f"{flag} is for a mesh inside this command; with --agent the models are those "
                    "that the mesh there was started with"
                )


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What the user said about the output.

    Attributes:
        accept: what may have changed since the run began.
        retry: finished rollouts to run again.
    """

    files: OutputFiles
    overwrite: bool
    resume: bool
    accept: frozenset[str]
    retry: RetryChoice
    trace: bool


def _quoted(text: str) -> str:
    # In single quotes YAML reads text as it is.
    return "'" + _as_written(text).replace("'", "''") + "'"


def _as_written(text: str) -> str:
    """Text as a configuration has it, in which the loader replaces `${…}`."""
    return text.replace("${", "$${")


def _mesh_of(values: dict[str, Any]) -> MeshOptions:
    named = [name for name in MeshOptions.__dataclass_fields__ if name in values]
    kept = click.get_current_context().meta.get(KEPT_CONFIGURATION)
    mesh = MeshOptions(**{name: values.pop(name) for name in named}, kept=kept)
    if mesh.model_api != "auto" and mesh.model_url is None:
        raise click.UsageError("--model-api says how to call --model-url; give that, too")
    return mesh


def _output_of(values: dict[str, Any]) -> OutputOptions:
    from gymmesh_client.output import RetryChoice
    from gymmesh_client.output_files import OutputFiles
    from gymmesh_client.problems import UserError

    try:
        retry = RetryChoice.parse(values.pop("retry"))
    except UserError as error:
        raise click.UsageError(str(error)) from None
    output = OutputOptions(
        files=OutputFiles(values.pop("output"), values.pop("shard_rows"), values.pop("compressed")),
        overwrite=values.pop("overwrite"),
        resume=values.pop("resume"),
        accept=frozenset(values.pop("accept")),
        retry=retry,
        trace=values.pop("trace"),
    )
    if output.overwrite and output.resume:
        raise click.UsageError("--overwrite and --resume exclude each other")
    for flag, given in (("--retry", output.retry), ("--accept-change", output.accept)):
        if given and not output.resume:
            raise click.UsageError(f"{flag} is about a run to go on with; add --resume")
    return output


def timeout_option(default_s: float, what: str) -> Callable[[F], F]:
    """--timeout, which a command takes as `timeout_s`: how long `what` may take, at most a day."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=f"How long {what} may take.",
    )


output_options = grouped(
    "output",
    _output_of,
    click.option(
        "--output",
        "-o",
        default="rollouts.jsonl",
        show_default=True,
        type=FILE,
        help="Where the rows of completed rollouts go. Failed ones go beside it, to "
        "NAME.failures.jsonl, and the journal that makes a run resumable to NAME.journal. Folders "
        "that are missing are made.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace a run that is there already."),
    click.option(
        "--resume",
        is_flag=True,
        help="Go on with an output: keep its outcomes and run what has none. The tasks, the "
        "configuration and the version of gymmesh must be the same.",
    ),
    click.option(
        "--retry",
        multiple=True,
        metavar="WHICH",
        help="With --resume: run these again, too: failed, boundary=NAME (such as TOOL), "
        "task=ID, or damaged (rows that were changed). What they had goes to "
        "NAME.superseded.jsonl. Repeatable.",
    ),
    click.option(
        "--accept-change",
        "accept",
        multiple=True,
        type=click.Choice(["tasks", "config", "version", "environments"]),
        help="With --resume: resume although this has changed. Repeatable.",
    ),
    click.option(
        "--shard-rows",
        type=click.IntRange(min=1),
        metavar="N",
        help="Write N rows to a file, and go on with the next: NAME-00000.jsonl and so on.",
    ),
    click.option("--trace", is_flag=True, help="Keep every event of every rollout, in NAME.trace."),
    click.option("--zstd", "compressed", is_flag=True, help="Compress the rows (adds .zst)."),
)


mesh_options = grouped(
    "mesh",
    _mesh_of,
    click.option(
        "--config",
        "-c",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=_CONFIG_HELP,
    ),
    click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help=_SET_HELP),
    click.option(
        "--model-url",
        metavar="URL",
        help="Use the OpenAI-compatible endpoint at this URL as the policy, such as "
        "http://127.0.0.1:8000/v1.",
    ),
    click.option(
        "--model",
        metavar="NAME",
        help="The policy model's name at its endpoint, or the path of a .gguf file.",
    ),
    click.option(
        "--model-api",
        type=click.Choice(["auto", "chat", "responses"]),
        default="auto",
        show_default=True,
        help="The API of --model-url; auto is chat.",
    ),
    click.option(
        "--env", "environment", metavar="NAME", help="The environment of tasks that name none."
    ),
)


place_argument = click.argument("environment_place", required=False, metavar="[ENVIRONMENT]")
"""An environment for this command alone: a file, a class or function in one, or a name. It comes
after `mesh_options`, which take its value.
"""

listening_options = together(
    click.option(
        "--host",
        metavar="HOST",
        help="The address to listen on; default: mesh.host, which is 127.0.0.1. Another one needs"
        " TLS (see docs/how-to/security.md), or --insecure.",
    ),
    click.option(
        "--insecure",
        is_flag=True,
        help="Listen at --host without TLS: anyone who can reach it can read and use what is"
        " served.",
    ),
    click.option(
        "--advertise",
        "advertise_host",
        metavar="HOST",
        help="The host at which others connect; default: mesh.advertise_host, or else"
        " --host. Where that is 0.0.0.0 or ::, this machine's one address; with several, say"
        " which.",
    ),
)
rollouts_argument = click.argument(
    "inputs", metavar="ROLLOUTS…", nargs=-1, required=True, type=FILE
)
environments_option = click.option(
    "--environment",
    "environments",
    multiple=True,
    metavar="NAME",
    help="Only rollouts of this environment; may be given several times.",
)
agent_option = click.option(
    "--agent",
    metavar="HOST:PORT",
    multiple=True,
    help="Use the agent service at this address instead of a mesh inside the command; again for"
    " each of several cells. Or all instances of the agent NAME: discovery://HOST:PORT/NAME asks a"
    " discovery service, consul://HOST:PORT/NAME Consul, kubernetes://NAMESPACE/NAME Kubernetes,"
    " xds:///agent.NAME an xDS control plane.",
)
skip_invalid_option = click.option(
    "--skip-invalid",
    is_flag=True,
    help="Leave out rows that are wrong, or that their environment refuses; NAME.skipped.jsonl "
    "says which and why. The exit code is then 3.",
)
number_ids_option = click.option(
    "--number-repeated-ids",
    "number_ids",
    is_flag=True,
    help="Rows whose task_id another row had before get -2, -3 and so on behind it.",
)
other_agents_option = click.option(
    "--refuse-other-agents",
    is_flag=True,
    help="A row whose agent_ref names another agent than would run it is wrong.",
)
tasks_option = click.option(
    "--tasks",
    "tasks_file",
    type=FILE,
    help="Use the tasks of this file instead of the environment's own examples.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Report as JSON on stdout.")

reward_range_option = click.option(
    "--reward-range",
    nargs=2,
    type=float,
    default=(0.0, 1.0),
    show_default=True,
    metavar="LOW HIGH",
    callback=lambda _context, _option, value: _ordered(value),
    help="The rewards that a failed or unjudged rollout could have had, for the bounds of means.",
)


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    low, high = value
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise click.BadParameter(f"{low:g} {high:g}: give two finite numbers, the lower one first")
    return value
