"""The command that serves an environment as an agent of NeMo Gym."""

from __future__ import annotations

import click
from aiohttp import web

from gymmesh_client import UserError
from gymmesh_runtime.addresses import exposure
from gymmesh_trainers.nemo_rl.agent import NemoAgent
from gymmesh_trainers.nemo_rl.policy import NemoPolicy, policy_of_head
from gymmesh_trainers.nemo_rl.rows import Forks


@click.command()
@click.option(
    "--environment",
    required=True,
    help="The environment: a name, package.module:Class or file.py:Class.",
)
@click.option("--head", help="NeMo Gym's head server, as http://HOST:PORT.")
@click.option("--model", help="Instead of --head: the policy's endpoint, as http://HOST:PORT/v1.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the agent listens.")
@click.option("--port", type=int, required=True, help="The port where the agent listens.")
@click.option(
    "--temperature", type=float, help="The trainer's temperature. Replaces the rows' values."
)
@click.option("--top-p", type=float, help="The trainer's top_p. Replaces the rows' values.")
@click.option(
    "--forks",
    type=click.Choice(["mask", "train"]),
    default="mask",
    show_default=True,
    help="Rollouts with several chains of tokens: exclude them from the loss (mask), or train "
    "only the last chain (train).",
)
@click.option("--insecure", is_flag=True, help="Allow a --host that other machines can reach.")
def main(
    environment: str,
    head: str | None,
    model: str | None,
    host: str,
    port: int,
    temperature: float | None,
    top_p: float | None,
    forks: Forks,
    insecure: bool,
) -> None:
    """Serve an environment as an agent of NeMo Gym."""
    if (head is None) == (model is None):
        raise click.UsageError("pass exactly one of --head and --model")
    # NeMo Gym's servers speak plain HTTP among themselves, and so must this one.
    if said := exposure("the agent", host, "run rollouts"):
        if not insecure:
            raise click.UsageError(f"{said}. To allow this, pass --insecure")
        click.echo(said, err=True)

    async def application() -> web.Application:
        policy = await policy_of_head(head) if head is not None else NemoPolicy([model or ""])
        given = {"temperature": temperature, "top_p": top_p}
        params = {key: value for key, value in given.items() if value is not None}
        return NemoAgent(environment, model=policy, forks=forks, params=params).application()

    try:
        web.run_app(application(), host=host, port=port)
    except UserError as error:
        raise click.ClickException(str(error)) from None
