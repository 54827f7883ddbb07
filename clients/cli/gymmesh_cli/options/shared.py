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
from gymmesh_cli.terminal import OptionGroup, option

if TYPE_CHECKING:
    from gymmesh_client.output import RetryChoice
    from gymmesh_client.output_files import OutputFiles
    from gymmesh_mesh import MeshConfig

FILE: Final = click.Path(path_type=Path, dir_okay=False)
_CONFIG_HELP: Final = (
    "YAML file that describes the mesh (its services and models). Repeatable: a "
    "later file overrides keys of an earlier file. In the file, ${NAME} and "
    "${NAME:-default} read the environment variable NAME."
)
_SET_HELP: Final = (
    "Override one key of the configuration. Example: --set "
    "agents.tool_loop.max_steps=4. Repeatable."
)


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """The user's options for the mesh."""

    config: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()
    model_url: str | None = None
    model: str | None = None
    model_api: str = "auto"
    environment: str | None = None
    environment_place: str | None = None
    kept: dict[str, Any] | None = None  # of a run that is resumed, below all of these

    def load(self) -> MeshConfig:
        """The configuration. An empty configuration is a complete mesh with a small built-in model.

        Raises:
            ConfigError: the configuration is invalid.
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
        """Raise a usage error for a flag that has no effect on a remote mesh."""
        if self.environment_place is not None:
            raise click.UsageError(
                f"{self.environment_place}: an environment file needs a mesh inside this command. "
                "With --agent, name an environment of the remote mesh with --env"
            )
        for flag, value in (("--model-url", self.model_url), ("--model", self.model)):
            if value is not None:
                raise click.UsageError(
                    f"{flag} needs a mesh inside this command. With --agent, the remote mesh "
                    f"chooses its models; remove {flag} or --agent"
                )


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The user's options for the output.

    Attributes:
        accept: the inputs that may have changed since the run began.
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
        raise click.UsageError("--model-api applies to --model-url; add --model-url")
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
        raise click.UsageError("--overwrite and --resume can't be combined")
    for flag, given in (("--retry", output.retry), ("--accept-change", output.accept)):
        if given and not output.resume:
            raise click.UsageError(f"{flag} applies to a resumed run; add --resume")
    return output


def timeout_option(
    default_s: float, what: str, group: OptionGroup = OptionGroup.FAILURES
) -> Callable[[F], F]:
    """--timeout, passed to a command as `timeout_s`: the time limit for `what`, at most a day."""
    return option(
        "--timeout",
        "timeout_s",
        group=group,
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=f"Time limit for {what}.",
    )


output_options = grouped(
    "output",
    _output_of,
    option(
        "--output",
        "-o",
        group=OptionGroup.OUTPUT,
        brief="Write rollouts here.  [default: rollouts.jsonl]",
        default="rollouts.jsonl",
        show_default=True,
        type=FILE,
        help=(
            "Write completed rollouts to this file. Failed rollouts go to "
            "NAME.failures.jsonl. --resume needs the journal, NAME.journal. The command "
            "creates missing folders."
        ),
    ),
    option("--overwrite", group=OptionGroup.OUTPUT, is_flag=True, help="Replace an existing run."),
    option(
        "--resume",
        group=OptionGroup.RESUME,
        brief="Resume a run: run only the missing rollouts.",
        is_flag=True,
        help="Resume a run: keep finished rollouts, run the missing ones. Tasks, configuration "
        "and gymmesh version must be unchanged.",
    ),
    option(
        "--retry",
        group=OptionGroup.RESUME,
        multiple=True,
        metavar="WHICH",
        help=(
            "With --resume: also rerun some finished rollouts. WHICH is `failed`, "
            "`boundary=NAME` (failures at a boundary such as TOOL), `task=ID`, or `damaged` "
            "(rows modified after the run). The old rows move to NAME.superseded.jsonl. "
            "Repeatable."
        ),
    ),
    option(
        "--accept-change",
        "accept",
        group=OptionGroup.RESUME,
        multiple=True,
        type=click.Choice(["tasks", "config", "version", "environments"]),
        help=(
            "With --resume: resume the run although this input has changed since the run "
            "began. Repeatable."
        ),
    ),
    option(
        "--shard-rows",
        group=OptionGroup.OUTPUT,
        type=click.IntRange(min=1),
        metavar="N",
        help=("Split the rows into files of N rows: NAME-00000.jsonl, NAME-00001.jsonl and so on."),
    ),
    option(
        "--trace",
        group=OptionGroup.OUTPUT,
        is_flag=True,
        help="Also write every event of every rollout to NAME.trace.",
    ),
    option(
        "--zstd",
        "compressed",
        group=OptionGroup.OUTPUT,
        is_flag=True,
        help="Compress the rows with Zstandard. File names then end with .zst.",
    ),
)


mesh_options = grouped(
    "mesh",
    _mesh_of,
    option(
        "--config",
        "-c",
        group=OptionGroup.MODELS,
        brief="YAML file that describes the mesh. Repeatable.",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=_CONFIG_HELP,
    ),
    option(
        "--set",
        "sets",
        group=OptionGroup.MODELS,
        multiple=True,
        metavar="KEY=VALUE",
        help=_SET_HELP,
    ),
    option(
        "--model-url",
        group=OptionGroup.MODELS,
        brief="OpenAI-compatible endpoint of the policy model.",
        metavar="URL",
        help=(
            "OpenAI-compatible endpoint of the policy model (the model that answers tasks). "
            "Example: http://127.0.0.1:8000/v1."
        ),
    ),
    option(
        "--model",
        group=OptionGroup.MODELS,
        brief="Name of the policy model, or path of a .gguf file.",
        metavar="NAME",
        help="Name of the policy model at the endpoint, or path of a .gguf file.",
    ),
    option(
        "--model-api",
        group=OptionGroup.MODELS,
        type=click.Choice(["auto", "chat", "responses"]),
        default="auto",
        show_default=True,
        help=(
            "API of the endpoint --model-url: chat (Chat Completions) or responses "
            "(Responses). auto selects chat."
        ),
    ),
    option(
        "--env",
        "environment",
        group=OptionGroup.MODELS,
        metavar="NAME",
        help="Name of the environment for tasks that don't name an environment.",
    ),
)


place_argument = click.argument("environment_place", required=False, metavar="[ENVIRONMENT]")
"""An environment for this command alone: a file, a class or function in one, or a name. It comes
after `mesh_options`, which take its value.
"""

listening_options = together(
    option(
        "--host",
        group=OptionGroup.LISTEN,
        metavar="HOST",
        help=(
            "Listen on this address. Default: the key mesh.host, or else 127.0.0.1. Any "
            "other address needs TLS (see docs/how-to/security.md) or --insecure."
        ),
    ),
    option(
        "--insecure",
        group=OptionGroup.LISTEN,
        is_flag=True,
        help=(
            "Listen on --host without TLS. Anyone who can reach this address can read and "
            "use the services."
        ),
    ),
    option(
        "--advertise",
        "advertise_host",
        group=OptionGroup.LISTEN,
        metavar="HOST",
        help=(
            "Host that other services connect to. Default: the key mesh.advertise_host, or "
            "else --host. If --host is 0.0.0.0 or ::, the default is this machine's address. "
            "A machine with several addresses needs this option."
        ),
    ),
)
rollouts_argument = click.argument(
    "inputs", metavar="ROLLOUTS…", nargs=-1, required=True, type=FILE
)
environments_option = option(
    "--environment",
    "environments",
    group=OptionGroup.SELECT,
    multiple=True,
    metavar="NAME",
    help="Select only rollouts of this environment. Repeatable.",
)
agent_option = option(
    "--agent",
    group=OptionGroup.MODELS,
    metavar="HOST:PORT",
    multiple=True,
    help=(
        "Use the agent service at this address instead of a mesh inside the command. "
        "Repeat the option for several agent services. Rows that name no agent run at the "
        "first service's agent. To use all instances of the agent "
        "NAME, pass discovery://HOST:PORT/NAME (a discovery service), "
        "consul://HOST:PORT/NAME, kubernetes://NAMESPACE/NAME, or xds:///agent.NAME."
    ),
)
skip_invalid_option = option(
    "--skip-invalid",
    group=OptionGroup.TASKS,
    is_flag=True,
    help=(
        "Skip rows that are invalid or that the environment rejects. NAME.skipped.jsonl "
        "lists the skipped rows and the reasons. If a row was skipped, the exit code is "
        "3."
    ),
)
number_ids_option = option(
    "--number-repeated-ids",
    "number_ids",
    group=OptionGroup.TASKS,
    is_flag=True,
    help=("If several rows have the same task_id, append -2, -3 and so on to the repeated ids."),
)
other_agents_option = option(
    "--refuse-other-agents",
    group=OptionGroup.TASKS,
    is_flag=True,
    help=(
        "Reject a row if the row's key agent_ref names a different agent than the agent "
        "that would run the row."
    ),
)
tasks_option = option(
    "--tasks",
    "tasks_file",
    group=OptionGroup.TASKS,
    type=FILE,
    help="Use the tasks of this file instead of the environment's examples.",
)
json_option = option(
    "--json",
    "as_json",
    group=OptionGroup.MONITORING,
    is_flag=True,
    help=("Print the report as JSON on stdout."),
)

reward_range_option = click.option(
    "--reward-range",
    nargs=2,
    type=float,
    default=(0.0, 1.0),
    show_default=True,
    metavar="LOW HIGH",
    callback=lambda _context, _option, value: _ordered(value),
    help=(
        "Lowest and highest possible reward. The report assumes that a rollout without a "
        "reward could have had any reward of this range, and computes bounds of the mean "
        "reward."
    ),
)


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    low, high = value
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise click.BadParameter(
            f"{low:g} {high:g}: expected two finite numbers, the lower number first"
        )
    return value
