"""`gym-cli conformance`: does a server, or a collector, follow the contract?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gymmesh_cli.options import SecurityOptions, security_options
from gymmesh_cli.terminal import GroupedCommand, OptionGroup, echo, option

_SERVICES = ("resource", "model", "agent", "discovery", "sandbox", "mux", "collector", "gateway")


@click.command(cls=GroupedCommand)
@option(
    "--service",
    group=OptionGroup.TASKS,
    type=click.Choice(_SERVICES),
    required=True,
    help=("Kind of service or program to test."),
)
@option(
    "--target",
    group=OptionGroup.LISTEN,
    metavar="HOST:PORT",
    help=(
        "Address of the server to test. With --service collector: address at which the "
        "suite serves an agent. The default is a free port. With --service gateway: the "
        "suite passes this address to the adapter."
    ),
)
@option(
    "--profile",
    group=OptionGroup.TASKS,
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with tasks, tool calls and parameters for the test cases.",
)
@option(
    "--registry",
    group=OptionGroup.LISTEN,
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    help=(
        "With --service agent: address at which the suite serves a discovery service. "
        "The default is a free port. The command prints the port."
    ),
)
@option(
    "--command",
    group=OptionGroup.PROGRAM,
    default="",
    help=(
        "With --service collector: command line that starts the collector. The suite "
        "replaces {agent} with an address, and {input}, {output} and {failures} with "
        "file names. Without --command, each case prints these values and waits until "
        "you start a collector."
    ),
)
@option(
    "--case",
    "cases",
    group=OptionGroup.TASKS,
    multiple=True,
    help=("Run only the test case of this name. Repeatable."),
)
@option(
    "--slow",
    "slow_s",
    group=OptionGroup.RUNNING,
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help=(
        "Duration of the slow calls in the test cases. Default: about one second. A "
        "value above 120 seconds also detects clients that ping too often."
    ),
)
@option(
    "--stop",
    group=OptionGroup.PROGRAM,
    default="",
    metavar="COMMAND",
    help=(
        "Command that shuts down the server, such as 'kill -TERM 1234'. One test case "
        "about shutdown, such as `goes_down`, runs it, and runs last."
    ),
)
@option(
    "--wait",
    "wait_s",
    group=OptionGroup.RUNNING,
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help=(
        "Maximum time to wait until the server answers, or until one run of a collector "
        "ends. Default: 30, or 300 for a collector without --command."
    ),
)
@option(
    "--hostile",
    group=OptionGroup.TASKS,
    is_flag=True,
    help=(
        "With --service sandbox: also run hostile programs in the service's sandboxes. "
        "These programs try to exhaust processes, memory, disk and output. Use a machine "
        "whose loss does no harm."
    ),
)
@option(
    "--adapter",
    group=OptionGroup.PROGRAM,
    default="",
    metavar="MODULE:CLASS",
    help=(
        "With --service gateway: the adapter, as MODULE:CLASS or FOLDER/FILE.py:CLASS. The "
        "adapter is a class that opens rollouts at a capture gateway and reads the captured "
        "calls. The command also searches the working directory for MODULE."
    ),
)
@option(
    "--json",
    "as_json",
    group=OptionGroup.MONITORING,
    is_flag=True,
    help=("Print the results as a JSON array."),
)
@option(
    "--junit",
    group=OptionGroup.MONITORING,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the results as JUnit XML.",
)
@security_options
def conformance(
    service: str, target: str | None, as_json: bool, security: SecurityOptions, **asked: Any
) -> int:
    """Test whether a service in any language follows the contract (the gRPC interfaces and rules of
    gymmesh).

    \b
    An environment, with a profile (tasks and tool calls for the test cases):
      gym-cli conformance --service resource --target 127.0.0.1:9402 --profile capitals.yaml
    Any server that supports the mux (gymmesh's transport for many calls):
      gym-cli conformance --service mux --target 127.0.0.1:9400
    An agent that finds the suite's services in the suite's registry:
      gym-cli conformance --service agent --target 127.0.0.1:9403 --registry 127.0.0.1:9400
    A sandbox service, with hostile programs in its sandboxes:
      gym-cli conformance --service sandbox --target 127.0.0.1:9405 --hostile
    A collector that the suite starts, once per case:
      gym-cli conformance --service collector \\
          --command 'gym-cli collect --agent {agent} --input {input} --output {output}'
    With mutual TLS. Agents and collectors see the same certificate from the suite:
      gym-cli conformance --service model --target 127.0.0.1:9401 --profile model.yaml \\
          --ca certs/ca.pem --cert certs/collector.pem --key certs/collector.key
    A collector that you start yourself, once per case:
      gym-cli conformance --service collector --target 127.0.0.1:9403
    A capture gateway of any framework, tested with recorded sessions of ten programs:
      gym-cli conformance --service gateway --adapter my_gateway:Adapter

    Each case names the rule of the contract that the case checks. If a case fails, the report has
    the observed behavior.

    \b
    Exit codes:
      0    no case failed; the report lists the requirements of each skipped case
      1    a case failed, or no server answered
      2    invalid usage or profile
    """
    from gymmesh_conformance.command import Options, run

    if service == "gateway":
        target = target or ""
    if target is None and service != "collector":
        raise click.UsageError("--target is missing: pass the HOST:PORT of the server")
    options = Options(
        service,
        "127.0.0.1:0" if target is None else target,
        json=as_json,
        security=security.over(),
        **asked,
    )
    return run(options, echo)
