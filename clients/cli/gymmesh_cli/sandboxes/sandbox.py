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
from gymmesh_cli.terminal import GroupedCommand, OptionGroup, option

# What follows the program's name is the program's own.
_PROGRAM: Final = {"allow_interspersed_args": False}
_COMMAND: Final = click.argument(
    "command", metavar="COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED
)
_address = together(
    option(
        "--address",
        group=OptionGroup.MODELS,
        metavar="ADDRESS",
        help=(
            "HOST:PORT of the sandbox service. To use all instances of the service --name, "
            "pass the address of a registry: discovery://HOST:PORT, consul://HOST:PORT or "
            "kubernetes://NAMESPACE."
        ),
    ),
    option(
        "--name",
        group=OptionGroup.MODELS,
        metavar="NAME",
        default="",
        help="Name of the sandbox service in the registry. Default: sandbox.",
    ),
    security_options,
)
_program = together(
    timeout_option(3600.0, "the program", OptionGroup.LIMITS),
    option(
        "--cwd",
        group=OptionGroup.PROGRAM,
        metavar="FOLDER",
        default="",
        help="Working directory of the program.",
    ),
    option(
        "--user",
        group=OptionGroup.PROGRAM,
        metavar="USER",
        default="",
        help="User (name or id) that runs the program.",
    ),
    option(
        "--env",
        "env",
        group=OptionGroup.PROGRAM,
        metavar="KEY=VALUE",
        multiple=True,
        help=("Set an environment variable of the program. Repeatable."),
    ),
    option(
        "--stdin",
        "-i",
        "reads",
        group=OptionGroup.PROGRAM,
        is_flag=True,
        help="Forward the standard input of this command to the program.",
    ),
    json_option,
)


@click.group()
def sandbox() -> None:
    """Run programs in sandboxes, and keep, list and end sandboxes.

    If COMMAND is one word, the shell of the sandbox runs COMMAND. If COMMAND is several words, the
    first word is a program, the other words are arguments, and no shell is used. `run` and `exec`
    exit with the program's exit code. If the program timed out, the exit code is 124. If a signal
    ended the program, the exit code is 128 plus the number of the signal.
    """


@sandbox.command(
    cls=GroupedCommand, context_settings=_PROGRAM, short_help="Run a program in a new sandbox."
)
@option(
    "--image",
    group=OptionGroup.PROGRAM,
    metavar="IMAGE",
    default="",
    help="Container image with the files of the sandbox.",
)
@option(
    "--cpus",
    group=OptionGroup.LIMITS,
    type=click.FloatRange(0, 1024),
    default=0.0,
    help="CPU limit, in processors.",
)
@option(
    "--memory",
    "memory_mb",
    group=OptionGroup.LIMITS,
    type=click.IntRange(0),
    default=0,
    help=("Memory limit in MiB."),
)
@option(
    "--disk",
    "disk_mb",
    group=OptionGroup.LIMITS,
    type=click.IntRange(0),
    default=0,
    help="Disk limit in MiB.",
)
@option(
    "--network",
    group=OptionGroup.LIMITS,
    type=click.Choice(["none", "open"]),
    default="none",
    show_default=True,
    help="Network of the sandbox. none: the sandbox reaches no host. open: the sandbox "
    "reaches every host.",
)
@option(
    "--allow",
    group=OptionGroup.LIMITS,
    metavar="HOST[:PORT]",
    multiple=True,
    help=(
        "With --network none: allow connections to this host, through a proxy. *.NAME "
        "allows all subdomains of NAME. Repeatable."
    ),
)
@option(
    "--put",
    group=OptionGroup.PROGRAM,
    metavar="LOCAL:FOLDER",
    multiple=True,
    help="Copy a local file, or a folder's content, into a folder of the sandbox. Repeatable.",
)
@option(
    "--keep",
    group=OptionGroup.RUNNING,
    type=FILE,
    help=(
        "Keep the sandbox after the program ends. Write the sandbox's lease to this new "
        "file. `gym-cli sandbox exec` and `gym-cli sandbox rm` need the lease. The "
        "sandbox ends after --ttl seconds without use."
    ),
)
@option(
    "--ttl",
    "ttl_s",
    group=OptionGroup.RUNNING,
    type=click.IntRange(1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="With --keep: end the sandbox after this many seconds without use.",
)
@option(
    "--config",
    "-c",
    group=OptionGroup.MODELS,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=(
        "Without --address: run a sandbox service of this configuration (key "
        "`sandboxes`) inside this command. Without --config, the sandbox service uses "
        "bubblewrap."
    ),
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
    """Run a program in a new sandbox, print the program's output, and end the sandbox.

    \b
      gym-cli sandbox run 'id; ls -la; cat /proc/meminfo | head -3'
      gym-cli sandbox run --put ./repo:repo --cwd repo python3 -m pytest -q
      gym-cli sandbox run --address 127.0.0.1:9500 --image py:1 --keep box.json true
    """
    from gymmesh_cli.sandboxes import using

    if address is None:
        security.refuse("--address")
        if asked["keep"] is not None:
            raise click.UsageError("--keep needs a remote service; add --address")
    elif config:
        raise click.UsageError("--config starts a service in this command; remove --address")
    if asked["allow"] and asked["network"] == "open":
        raise click.UsageError(
            "--allow has no effect with --network open; remove one of the two options"
        )
    return using.run(command, address, security.over(), MeshOptions(config=config), **asked)


@sandbox.command("exec", context_settings=_PROGRAM, short_help="Run a program in a kept sandbox.")
@click.argument("lease", metavar="LEASE", type=FILE)
@security_options
@_program
@_COMMAND
def exec_(command: tuple[str, ...], lease: Path, security: SecurityOptions, **asked: Any) -> int:
    """Run a program in a kept sandbox. LEASE is the file that `gym-cli sandbox run --keep` wrote.

    \b
      gym-cli sandbox exec box.json 'cat >>notes' -i <more.txt
      gym-cli sandbox exec box.json git log --oneline
    """
    from gymmesh_cli.sandboxes import using

    return using.execute(command, lease, security.over(), **asked)


@sandbox.command("ls", short_help="List the sandboxes of a sandbox service.")
@_address
@json_option
def list_sandboxes(
    address: str | None, name: str, security: SecurityOptions, as_json: bool
) -> None:
    """List the sandboxes of a sandbox service, one per line. The list does not include leases.

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
    """End sandboxes. Without --address, pass the lease file of each sandbox (see `gym-cli sandbox
    run --keep`). The command also deletes the lease files. With --address, pass sandbox ids. Ids
    need the permission `control`.

    \b
      gym-cli sandbox rm box.json
      gym-cli sandbox rm --address 127.0.0.1:9500 sb-0b6b91d2f5509303
    """
    from gymmesh_cli.sandboxes import using

    using.remove(which, address, name, security.over())


def _given(address: str | None) -> str:
    if address is None:
        raise click.UsageError("--address is missing: pass the HOST:PORT of the sandbox service")
    return address
