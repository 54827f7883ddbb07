"""gym-cli models: list them, fetch their weights, try a call with each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import (
    MeshOptions,
    SecurityOptions,
    json_option,
    mesh_options,
    security_options,
)
from gymmesh_cli.terminal import (
    DONE,
    NOTHING_DONE,
    WITH_FAILURES,
    echo,
    echo_json,
    one_line,
    report,
)

if TYPE_CHECKING:
    from gymmesh_mesh.model_checks import ModelCheck
    from gymmesh_trainers.weights import WeightsPush

_WORDS_SHOWN: Final = 60


@click.group()
def models() -> None:
    """List, download and try models, such as the policy model and judges, and load new weights."""


names_argument = click.argument("names", nargs=-1, metavar="[NAME]…")


@models.command("list", short_help="List the configuration's models.")
@mesh_options
@json_option
def list_models(mesh: MeshOptions, as_json: bool) -> None:
    """List the models of a configuration.

    \b
      gym-cli models list --config mesh.yaml
    """
    from gymmesh_mesh.model_checks import shown_url

    config = mesh.load()
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "backend": one.backend,
            "model": one.model or (own.model if (own := one.serve or one.engine) else None),
            "url": shown_url(one.url) or None,
            "urls": [shown_url(url) for url in one.urls],
            "default": name == config.defaults.model,
        }
        for name, one in config.models.items()
    ]
    lines = []
    for row in rows:
        parts = [row["name"], row["backend"], row["model"], row["url"], *row["urls"]]
        lines.append("  ".join(filter(None, parts)) + ("  (default)" if row["default"] else ""))
    report(as_json, {"models": rows}, lines)


@models.command("pull", short_help="Download the weights of embedded models.")
@names_argument
@mesh_options
@json_option
def pull_models(names: tuple[str, ...], mesh: MeshOptions, as_json: bool) -> None:
    """Download the weights of embedded models (models that run inside a gymmesh process). NAME is a
    model of the configuration. Default: all models.

    The command verifies weights that are already on this machine, and keeps these weights. Without
    --config, the command downloads the default model. For remote models, the command downloads
    nothing.

    \b
      gym-cli models pull
      gym-cli models pull policy --config mesh.yaml

    Exit code 0: all weights are on this machine. 1: weights can't be downloaded.
    """
    import asyncio

    from gymmesh_mesh.model_checks import named, pull

    rows = []
    for name, model in named(mesh.load(), names).items():
        weights = asyncio.run(pull(name, model))
        path = str(weights.path) if weights.path else None
        rows.append({"name": name, "backend": model.backend, "path": path, "bytes": weights.size})
        if not as_json:
            said = f"{path} ({weights.size / 1e6:.1f} MB)" if path else "nothing to download"
            echo(one_line(f"{name}  {model.backend}  {said}"))
    if as_json:
        echo_json({"models": rows})


@models.command("check", short_help="Try one call with each model.")
@names_argument
@mesh_options
@click.option("--prompt", metavar="TEXT", help="Send this text instead of the built-in question.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for each call.",
)
@json_option
def check_models(
    names: tuple[str, ...], mesh: MeshOptions, prompt: str | None, timeout: float, as_json: bool
) -> int:
    """Try one call with each model. NAME is a model of the configuration. Default: all models.

    For each model, the command shows the latency, the beginning of the answer, the tokens of the
    call (in and out) and the model's capabilities. If the call fails, the command shows the error
    and a fix. A second call offers a tool. The capabilities include `tools` only if the model
    answers the second call with a tool call. If a model has several endpoints, the command tries
    each endpoint.

    \b
      gym-cli models check --config mesh.yaml
      gym-cli models check judge --config mesh.yaml --timeout 20 --json

    Exit code 0: all models answered. 1: no model answered. 3: some models did not answer.
    """
    import asyncio

    from gymmesh_mesh.model_checks import PROMPT, check, named

    chosen = named(mesh.load(), names)
    checks = asyncio.run(check(chosen, prompt=prompt or PROMPT, timeout=timeout))
    rows = [{**dataclasses.asdict(one), "ok": one.ok} for one in checks]
    report(as_json, {"models": rows}, [line for one in checks for line in _check_lines(one)])
    good = sum(one.ok for one in checks)
    return DONE if good == len(checks) else WITH_FAILURES if good else NOTHING_DONE


@models.command("set-weights", short_help="Announce a new weights version to model services.")
@click.argument("version", type=click.IntRange(min=0))
@click.option(
    "--address",
    "addresses",
    multiple=True,
    required=True,
    metavar="HOST:PORT",
    help="Address of a model service, as `gym-cli up` shows it. Repeat for each replica.",
)
@security_options
@json_option
def set_weights(
    version: int, addresses: tuple[str, ...], security: SecurityOptions, as_json: bool
) -> None:
    """Announce to a model service that the model's weights now have this VERSION.

    Use this command if your trainer loads new weights but does not call SetWeightsVersion. The
    model service adds the version to later calls. VERSION is a number. A version can only increase.

    \b
      gym-cli models set-weights 4 --address 127.0.0.1:42199
    """
    import asyncio

    from gymmesh_mesh.model_checks import set_weights as tell

    before = asyncio.run(tell(addresses, version, security.over()))
    rows = [{"address": one, "before": was, "now": version} for one, was in before.items()]
    lines = [
        f"{address}  {'none' if was is None else was} -> {version}"
        for address, was in before.items()
    ]
    report(as_json, {"models": rows}, lines)


@models.command(
    "push-weights", short_help="Load new weights on inference servers and announce a version."
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("version", type=click.IntRange(min=0))
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    required=True,
    metavar="URL",
    help="Address of an inference server, such as http://gpu-0:8000/v1. Repeat for each server.",
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    required=True,
    metavar="HOST:PORT",
    help="Address of a model service, as `gym-cli up` shows it. Repeat for each replica.",
)
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="URL",
    help=(
        "URL under which a model service calls an inference server, if --endpoint has a "
        "different URL for this server. Repeatable."
    ),
)
@click.option(
    "--kind",
    type=click.Choice(["vllm", "sglang"]),
    default="vllm",
    show_default=True,
    help="Type of the inference servers at the endpoints.",
)
@click.option(
    "--adapter",
    default="",
    metavar="NAME",
    help="FOLDER has a LoRA adapter. Load the adapter under this name.",
)
@click.option(
    "--in-flight",
    type=click.Choice(["continue", "abort"]),
    default="continue",
    show_default=True,
    help=(
        "What happens to unfinished answers. continue: the answers continue with the new "
        "weights. abort: the inference server ends the answers, and the model service "
        "continues or repeats these answers with the new weights."
    ),
)
@click.option(
    "--folder-there",
    default="",
    metavar="PATH",
    help=(
        "Path of FOLDER on the inference servers, if the path differs from FOLDER on this machine."
    ),
)
@click.option(
    "--api-key-env",
    default="",
    metavar="NAME",
    help="Name of the environment variable with the API key of the inference servers.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the whole command.",
)
@security_options
@json_option
def push_weights(
    folder: Path,
    version: int,
    endpoints: tuple[str, ...],
    addresses: tuple[str, ...],
    aliases: tuple[str, ...],
    kind: str,
    adapter: str,
    in_flight: str,
    folder_there: str,
    api_key_env: str,
    timeout: float,
    security: SecurityOptions,
    as_json: bool,
) -> int:
    """Load the weights in FOLDER on every inference server, then announce the weights as VERSION to
    the model services.

    The command announces the version only after every server has loaded the weights. Name every
    inference server that the model services call. If a server is missing, the command fails before
    it changes anything. The servers must allow loading weights. vLLM needs VLLM_SERVER_DEV_MODE=1.
    For adapters, vLLM also needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.

    \b
      gym-cli models push-weights step-4/ 4 --endpoint http://gpu-0:8000/v1 --address gpu-0:50051

    Exit code 0: all servers use the new weights. 1: a server does not use the new weights. The
    command lists the servers.
    """
    import asyncio

    from gymmesh_trainers.weights import PushFailed, pushed

    key = os.environ.get(api_key_env, "") if api_key_env else ""
    if api_key_env and not key:
        raise click.UsageError(f"--api-key-env: the variable {api_key_env} is not set")
    try:
        done = asyncio.run(
            pushed(
                folder,
                version,
                urls=endpoints,
                kind=kind,
                api_key=key,
                addresses=addresses,
                security=security.over(),
                aliases=aliases,
                adapter=adapter,
                in_flight=in_flight,
                folder_there=folder_there,
                timeout_s=timeout,
            )
        )
    except PushFailed as error:
        report(as_json, {**_push_row(error.push), "error": str(error)}, [str(error)])
        return NOTHING_DONE
    lines = [f"loaded on {one.url} in {one.seconds:.1f} s" for one in done.endpoints]
    now = f"{version} {done.adapter}".rstrip()
    lines += [
        f"announced to {address}: {'none' if was is None else was} -> {now}"
        for address, was in done.announced.items()
    ]
    lines += [f"unloaded {one}" for one in done.unloaded]
    lines += [f"{one} is not unloaded: calls still use this adapter" for one in done.in_use]
    report(as_json, {**_push_row(done), "error": None}, lines)
    return DONE


def _push_row(push: WeightsPush) -> dict[str, Any]:
    """A push as JSON. `previous`: the version before, by each model service that was told."""
    row = dataclasses.asdict(push)
    row["previous"] = row.pop("announced")
    return row


def _check_lines(one: ModelCheck) -> Iterator[str]:
    about = "  ".join(part for part in (one.name, one.backend, one.endpoint_model, one.url) if part)
    if not one.ok:
        yield f"FAILED  {about}"
        yield f"        {one.reason}: {one.message}"
        yield f"        fix: {one.fix}"
        return
    words = " ".join(one.text.split())
    words = f"{words[:_WORDS_SHOWN]}…" if len(words) > _WORDS_SHOWN else words
    tokens = f"{one.input_tokens} + {one.output_tokens} tokens"
    yield f"ok      {about}"
    yield f"        {one.latency_s:.2f} s, {tokens}: {words or '(no text)'}"
    yield f"        supports: {', '.join(one.capabilities)}"
    if one.no_tools:
        yield (
            f"        no tool calls: the test call with a tool returned {one.no_tools} "
            "instead of a tool call"
        )
