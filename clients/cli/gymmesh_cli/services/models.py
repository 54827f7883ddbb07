"""gym-cli models: list them, fetch their weights, try a call with each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.security import SecurityOptions, security_options
from gymmesh_cli.options.shared import MeshOptions, json_option, mesh_options
from gymmesh_cli.terminal import echo, echo_json, one_line, report
from gymmesh_cli.terminal.exits import DONE, NOTHING_DONE, WITH_FAILURES

if TYPE_CHECKING:
    from gymmesh_mesh.model_checks import ModelCheck

_WORDS_SHOWN: Final = 60


@click.group()
def models() -> None:
    """Models: what answers, as policy, judge or simulated user."""


names_argument = click.argument("names", nargs=-1, metavar="[NAME]…")


@models.command("list", short_help="The mesh's models.")
@mesh_options
@json_option
def list_models(mesh: MeshOptions, as_json: bool) -> None:
    """The models of a configuration.

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
        lines.append("  ".join(filter(None, parts)) + ("  (policy)" if row["default"] else ""))
    report(as_json, {"models": rows}, lines)


@models.command("pull", short_help="Fetch the weights of embedded models.")
@names_argument
@mesh_options
@json_option
def pull_models(names: tuple[str, ...], mesh: MeshOptions, as_json: bool) -> None:
    """Fetch the weights of the embedded models of a configuration, or of those named.

    Weights that are there already are checked and kept. Without a configuration these are the
    default model's. Models that are served elsewhere have nothing to fetch.

    \b
      gym-cli models pull
      gym-cli models pull policy --config mesh.yaml

    Exit code 1 when weights cannot be had.
    """
    import asyncio

    from gymmesh_mesh.model_checks import named, pull

    rows = []
    for name, model in named(mesh.load(), names).items():
        weights = asyncio.run(pull(name, model))
        path = str(weights.path) if weights.path else None
        rows.append({"name": name, "backend": model.backend, "path": path, "bytes": weights.size})
        if not as_json:
            said = f"{path} ({weights.size / 1e6:.1f} MB)" if path else "nothing to fetch"
            echo(one_line(f"{name}  {model.backend}  {said}"))
    if as_json:
        echo_json({"models": rows})


@models.command("check", short_help="Try one call with each model.")
@names_argument
@mesh_options
@click.option("--prompt", metavar="TEXT", help="What to ask, in place of a question of its own.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a call may take.",
)
@json_option
def check_models(
    names: tuple[str, ...], mesh: MeshOptions, prompt: str | None, timeout: float, as_json: bool
) -> int:
    """Try one call with each model of a configuration, or with those named.

    Shows how long it took, how the answer begins, its tokens (in and out) and what the model can
    do; or what is wrong and what to do about it. Tools are among what it can do only if a second
    call, which offers one, is answered by a tool call. Each endpoint of a model that has several is
    tried by itself.

    \b
      gym-cli models check --config mesh.yaml
      gym-cli models check judge --config mesh.yaml --timeout 20 --json

    Exit code 0 when all answered, 1 when none did, 3 when some did not.
    """
    import asyncio

    from gymmesh_mesh.model_checks import PROMPT, check, named

    chosen = named(mesh.load(), names)
    checks = asyncio.run(check(chosen, prompt=prompt or PROMPT, timeout=timeout))
    rows = [{**dataclasses.asdict(one), "ok": one.ok} for one in checks]
    report(as_json, {"models": rows}, [line for one in checks for line in _check_lines(one)])
    good = sum(one.ok for one in checks)
    return DONE if good == len(checks) else WITH_FAILURES if good else NOTHING_DONE


@models.command("set-weights", short_help="Tell running models of new weights.")
@click.argument("version", type=click.IntRange(min=0))
@click.option(
    "--address",
    "addresses",
    multiple=True,
    required=True,
    metavar="HOST:PORT",
    help="A model service, as `gym-cli up` shows it; again for each replica.",
)
@security_options
@json_option
def set_weights(
    version: int, addresses: tuple[str, ...], security: SecurityOptions, as_json: bool
) -> None:
    """Say that a model's weights are of VERSION from now on.

    For trainers that swap weights and don't call SetWeightsVersion themselves. Calls that begin
    afterwards carry the version; it can only grow.

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
    yield f"        can: {', '.join(one.capabilities)}"
    if one.no_tools:
        yield f"        no tools: asked for a tool call, it gave {one.no_tools}"
