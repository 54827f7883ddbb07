"""gym-cli sandbox: machines to work in, by hand.

What its commands do is in `using`, imported when one runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from gymmesh_cli.options import (
    FILE,
    MeshOptions,
    SecurityOptions,
    json_option,
    security_options,
    timeout_option,
    together,
)

# What follows the program's name is the program's own.
_PROGRAM: Final = {"allow_interspersed_args": False}
_COMMAND: Final = click.argument(
    "command", metavar="COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED
)
_address = together(
    click.option(
        "--address",
        metavar="ADDRESS",
        help="The sandbox service: HOST:PORT, or discovery://HOST:PORT, consul://HOST:PORT or"
        " kubernetes://NAMESPACE for all instances of --name in a registry.",
    ),
    click.option(
        "--name", metavar="NAME", default="", help="The service's name: sandbox unless given."
    ),
    security_options,
)
_program = together(
    timeout_option(3600.0, "the program"),
    click.option("--cwd", metavar="FOLDER", default="", help="Where it starts."),
    click.option("--user", metavar="USER", default="", help="Who it runs as, by name or number."),
    click.option(
        "--env", "env", metavar="KEY=VALUE", multiple=True, help="A variable. Repeatable."
    ),
    click.option(
        "--stdin", "-i", "reads", is_flag=True, help="Give it this command's standard input."
    ),
    json_option,
)


@click.group()
def sandbox() -> None:
    """Sandboxes: run programs in one, keep one, list and end those of a service.

    A COMMAND of one word is a line for the sandbox's shell; of several, a program and its
    arguments, which no shell reads. run and exec end with the program's exit code: 124 where its
    time was up, 128 and the signal where one ended it.
    """


@sandbox.command(context_settings=_PROGRAM, short_help="Run a program in a new sandbox.")
@click.option("--image", metavar="IMAGE", default="", help="What its files are made from.")
@click.option("--cpus", type=click.FloatRange(0, 1024), default=0.0, help="Processors.")
@click.option("--memory", "memory_mb", type=click.IntRange(0), default=0, help="MiB of memory.")
@click.option("--disk", "disk_mb", type=click.IntRange(0), default=0, help="MiB of files.")
@click.option(
    "--network",
    type=click.Choice(["none", "open"]),
    default="none",
    show_default=True,
    help="What it can reach.",
)
@click.option(
    "--allow",
    metavar="HOST[:PORT]",
    multiple=True,
    help="A host that it can reach, through a proxy; *.NAME for all below a name. Repeatable.",
)
@click.option(
    "--put",
    metavar="LOCAL:FOLDER",
    multiple=True,
    help="Copy a local folder's content, or a file, into a folder of the sandbox. Repeatable.",
)
@click.option(
    "--keep",
    type=FILE,
    help="Leave it running, and write its lease to this new file. It ends --ttl seconds after it"
    " was used last.",
)
@click.option("--ttl", "ttl_s", type=click.IntRange(1), default=600, show_default=True)
@click.option(
    "--config",
    "-c",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Without --address: a configuration with `sandboxes:`, one of which runs in this command."
    " Without either, bubblewrap does.",
)
@_address
@_program
@_COMMAND
def run(
    command: tuple[str, ...],
    address: str | None,
    security: SecurityOptions,
    config: tuple[Path, ...],
    **asked: Any,
) -> int:
    """Make a sandbox, run a program in it, show what it writes, and end it.

    \b
      gym-cli sandbox run 'id; ls -la; cat /proc/meminfo | head -3'
      gym-cli sandbox run --put ./repo:repo --cwd repo python3 -m pytest -q
      gym-cli sandbox run --address 127.0.0.1:9500 --image py:1 --keep box.json true
    """
    from gymmesh_cli.sandboxes import using

    if address is None:
        security.refuse("--address")
        if asked["keep"] is not None:
            raise click.UsageError("--keep is for a service elsewhere; give --address, too")
    elif config:
        raise click.UsageError("--config is for a service in this command; leave out --address")
    if asked["allow"] and asked["network"] == "open":
        raise click.UsageError("--allow bounds what --network open does not")
    return using.run(command, address, security.over(), MeshOptions(config=config), **asked)


@sandbox.command("exec", context_settings=_PROGRAM, short_help="Run a program in a kept sandbox.")
@click.argument("lease", metavar="LEASE", type=FILE)
@security_options
@_program
@_COMMAND
def exec_(command: tuple[str, ...], lease: Path, security: SecurityOptions, **asked: Any) -> int:
    """Run a program in the sandbox whose lease is in the file LEASE, which --keep wrote.

    \b
      gym-cli sandbox exec box.json 'cat >>notes' -i <more.txt
      gym-cli sandbox exec box.json git log --oneline
    """
    from gymmesh_cli.sandboxes import using

    return using.execute(command, lease, security.over(), **asked)


@sandbox.command("ls", short_help="The sandboxes of a service.")
@_address
@json_option
def list_sandboxes(
    address: str | None, name: str, security: SecurityOptions, as_json: bool
) -> None:
    """A line for each sandbox of a service, without leases.

    \b
      gym-cli sandbox ls --address 127.0.0.1:9500
      gym-cli sandbox ls --address discovery://127.0.0.1:9400 --name boxes --json
    """
    from gymmesh_cli.sandboxes import using

    using.list_sandboxes(_given(address), name, security.over(), as_json)


@sandbox.command("rm", short_help="End sandboxes.")
@click.argument("which", metavar="LEASE|ID…", nargs=-1, required=True)
@_address
def remove(
    which: tuple[str, ...], address: str | None, name: str, security: SecurityOptions
) -> None:
    """End sandboxes: each by the file of its lease, which is removed, or with --address by its id,
    which takes the permission `control`.

    \b
      gym-cli sandbox rm box.json
      gym-cli sandbox rm --address 127.0.0.1:9500 sb-0b6b91d2f5509303
    """
    from gymmesh_cli.sandboxes import using

    using.remove(which, address, name, security.over())


def _given(address: str | None) -> str:
    if address is None:
        raise click.UsageError("--address is missing: where is the sandbox service?")
    return address
