"""Runs a conformance suite against a server at an address.

    python -m gymmesh_conformance --resource 127.0.0.1:9402 --profile my_environment.yaml
    python -m gymmesh_conformance --model 127.0.0.1:9401 --profile my_model.yaml
    python -m gymmesh_conformance --agent 127.0.0.1:9403 --registry 127.0.0.1:9400
    python -m gymmesh_conformance --discovery 127.0.0.1:9400
    python -m gymmesh_conformance --sandbox 127.0.0.1:9405 --hostile
    python -m gymmesh_conformance --mux 127.0.0.1:9400
    python -m gymmesh_conformance --collector 127.0.0.1:0 \
        --command 'my-collector --agent {agent} --input {input} --output {output}'
    python -m gymmesh_conformance --collector 127.0.0.1:9403    # and start it by hand
    python -m gymmesh_conformance --gateway http://127.0.0.1:8080 --adapter my_gateway:Adapter

Exit codes: 0 the server conforms (skipped cases are listed), 1 a case failed or the server could
not be reached, 2 the command line or a profile is wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gymmesh_conformance.command import USAGE, Options, run
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import ShownFiles

_WHAT = {
    "resource": "an environment with its verifier",
    "model": "a model",
    "agent": "an agent",
    "discovery": "a registry",
    "sandbox": "a sandbox service",
    "mux": "a server of any of these that offers the mux",
    "collector": "a collector: where the agent for it is served",
    "gateway": "a capture gateway: what its adapter is called with, such as its address",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    given = _parser().parse_args(arguments)
    service = next(name for name in _WHAT if getattr(given, name) is not None)
    files = ShownFiles(given.ca, given.cert, given.key, given.server_name, given.token_file)
    try:
        security = files.over()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return USAGE
    options = Options(
        service,
        getattr(given, service),
        profile=given.profile,
        registry=given.registry,
        command=given.command,
        cases=tuple(given.case),
        slow_s=given.slow,
        stop=given.stop,
        wait_s=given.wait,
        hostile=given.hostile,
        adapter=given.adapter,
        json=given.json,
        junit=given.junit,
        security=security,
    )
    try:
        return run(options, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gymmesh_conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    for name, what in _WHAT.items():
        where = "TARGET" if name == "gateway" else "HOST:PORT"
        which.add_argument(f"--{name}", metavar=where, help=what)
    parser.add_argument("--profile", type=Path, help="what the suite may use there (YAML)")
    parser.add_argument(
        "--registry",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="with --agent: where the suite serves discovery for it (default: a free port)",
    )
    parser.add_argument(
        "--command",
        default="",
        help="with --collector: its command, with {agent}, {input}, {output} and {failures}; "
        "without one it is waited for, case by case",
    )
    parser.add_argument(
        "--slow", type=float, help="seconds that a slow call takes; over 120 finds out pings"
    )
    parser.add_argument(
        "--stop",
        default="",
        help="a command that tells the server to go down, for the cases about that, which run last",
    )
    parser.add_argument(
        "--wait",
        type=float,
        help="seconds to wait for the server, or for a run of the collector (default: 30, and "
        "300 for a collector without --command)",
    )
    parser.add_argument(
        "--hostile", action="store_true", help="with --sandbox: run hostile programs, too"
    )
    parser.add_argument(
        "--adapter",
        default="",
        metavar="MODULE:CLASS",
        help="with --gateway: opens rollouts there; or FOLDER/FILE.py:CLASS",
    )
    parser.add_argument("--case", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--json", action="store_true", help="results as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="results as JUnit XML, too")
    parser.add_argument("--ca", metavar="FILE", help="the authority of its certificate: use TLS")
    parser.add_argument("--cert", metavar="FILE", help="the certificate to show, and to serve with")
    parser.add_argument("--key", metavar="FILE", help="its key")
    parser.add_argument("--server-name", metavar="NAME", help="what the server's certificate says")
    parser.add_argument("--token-file", metavar="FILE", help="the bearer token to show")
    return parser


if __name__ == "__main__":
    sys.exit(main())
