"""`gym-cli conformance`: does a server, or a collector, keep to the contract?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gymmesh_cli.options import SecurityOptions, security_options
from gymmesh_cli.terminal import echo

_SERVICES = ("resource", "model", "agent", "discovery", "sandbox", "mux", "collector", "gateway")


@click.command()
@click.option(
    "--service", type=click.Choice(_SERVICES), required=True, help="What it is, and so which suite."
)
@click.option(
    "--target",
    metavar="HOST:PORT",
    help="Where it listens. With --service collector: where the agent for it is served, by "
    "default at a free port. With --service gateway: what its adapter is called with.",
)
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What the suite may use there: tasks, tool calls, parameters (YAML).",
)
@click.option(
    "--registry",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    help="With --service agent: where the suite serves discovery for it; by default at a free "
    "port, which is printed.",
)
@click.option(
    "--command",
    default="",
    help="With --service collector: its command line, in which {agent}, {input}, {output} and "
    "{failures} stand for what it is given. Without one, each case waits for a collector that "
    "you start, and says what to give it.",
)
@click.option("--case", "cases", multiple=True, help="Only this case. Repeatable.")
@click.option(
    "--slow",
    "slow_s",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="How long slow calls take, instead of about a second. More than 120 finds out a client "
    "that pings too often.",
)
@click.option(
    "--stop",
    default="",
    metavar="COMMAND",
    help="Tells the server to go down, such as 'kill -TERM 1234', for the case about that, which "
    "runs last.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="How long to wait for the server, or for one run of a collector: 30 unless given, and 300 "
    "for a collector without --command.",
)
@click.option(
    "--hostile",
    is_flag=True,
    help="With --service sandbox: run hostile programs in its sandboxes, too. They flood "
    "processes, memory, disk and output, so only against a machine that may suffer.",
)
@click.option(
    "--adapter",
    default="",
    metavar="MODULE:CLASS",
    help="With --service gateway: the class that opens rollouts at a capture gateway and reads the "
    "captured calls; or FOLDER/FILE.py:CLASS. It is looked for in the working directory, too.",
)
@click.option("--json", "as_json", is_flag=True, help="Results as a JSON array.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results as JUnit XML, too.",
)
@security_options
def conformance(
    service: str, target: str | None, as_json: bool, security: SecurityOptions, **asked: Any
) -> int:
    """Test whether a server of any language keeps to the contract.

    \b
    An environment, and what the suite may use there:
      gym-cli conformance --service resource --target 127.0.0.1:9402 --profile capitals.yaml
    A server of any kind that offers the mux:
      gym-cli conformance --service mux --target 127.0.0.1:9400
    An agent, which is started with the suite's registry as its own:
      gym-cli conformance --service agent --target 127.0.0.1:9403 --registry 127.0.0.1:9400
    A sandbox service, with hostile programs in its sandboxes:
      gym-cli conformance --service sandbox --target 127.0.0.1:9405 --hostile
    A collector, which is run once for each case:
      gym-cli conformance --service collector \\
          --command 'gym-cli collect --agent {agent} --input {input} --output {output}'
    Over mutual TLS; what an agent or a collector calls is served with the same certificate:
      gym-cli conformance --service model --target 127.0.0.1:9401 --profile model.yaml \\
          --ca certs/ca.pem --cert certs/collector.pem --key certs/collector.key
    A collector that you start yourself, as often as there are cases:
      gym-cli conformance --service collector --target 127.0.0.1:9403
    A capture gateway of any framework, over which recorded sessions of ten programs are played:
      gym-cli conformance --service gateway --adapter my_gateway:Adapter

    A case names the rule of the contract that it checks; a failure says what was seen instead.

    \b
    Exit codes:
      0    no case failed; skipped ones are listed with what they need
      1    a case failed, or nothing answered
      2    wrong usage or profile
    """
    from gymmesh_conformance.command import Options, run

    if service == "gateway":
        target = target or ""
    if target is None and service != "collector":
        raise click.UsageError("--target is needed: the HOST:PORT at which the server listens")
    options = Options(
        service,
        "127.0.0.1:0" if target is None else target,
        json=as_json,
        security=security.over(),
        **asked,
    )
    return run(options, echo)
