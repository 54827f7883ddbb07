"""Runs the gateway suite over our gateway and those of other projects, and prints a table.

    python -m tests.conformance.gateways.compare [NAME …] [--json FILE]

`make compare-gateways` installs the projects first, each into an interpreter of its own. One that
is not there, or in another version than the compared one, is named and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from gymmesh_conformance.gateway import (
    AdapterError,
    GatewayAdapter,
    run_gateway_suite,
    select_gateway_cases,
)
from gymmesh_conformance.gateway.playing import SUITE, TOKENS
from gymmesh_conformance.reports import lines_of
from gymmesh_conformance.runner import CaseResult
from tests.conformance.gateways.peers import Peer, PeerGateway
from tests.conformance.our_gateway import OurGateway

_CACHE: Final = Path(__file__).parents[3] / ".cache"
_OUTCOMES: Final = ("passed", "failed", "not shown")
_EVERY: Final = ("chat", "responses", "messages", "gemini")
_OURS: Final = Peer("gymmesh", "", "this version", "", "", _EVERY)
PEERS: Final = (
    Peer(
        "verifiers, eval client",
        "verifiers",
        "0.4.0",
        "peer_verifiers.py",
        "bench/verifiers",
        ("chat", "responses", "messages"),
        arguments=("relay",),
    ),
    Peer(
        "verifiers, train client",
        "verifiers",
        "0.4.0",
        "peer_verifiers.py",
        "bench/verifiers",
        ("chat",),
        arguments=("train",),
    ),
    Peer(
        "OpenEnv",
        "openenv",
        "0.10.0",
        "peer_openenv.py",
        "gateways/openenv",
        _EVERY,
    ),
    Peer(
        "NeMo Gym",
        "nemo-gym",
        "0.7.0",
        "peer_nemo.py",
        "bench/nemo",
        ("chat", "responses", "messages"),
    ),
    # It passes on whatever the engine behind it answers below /v1.
    Peer(
        "rLLM",
        "rllm-model-gateway",
        "0.1.0",
        "peer_rllm.py",
        "gateways/rllm",
        ("chat", "responses", "messages"),
    ),
    Peer(
        "Agent Lightning",
        "agentlightning",
        "1.0.2",
        "peer_agent_lightning.py",
        "gateways/agent-lightning",
        ("chat",),
        streams=False,
    ),
)


@dataclass(frozen=True)
class Row:
    """A gateway and what came of it; `absent`: why nothing did."""

    peer: Peer
    results: Sequence[CaseResult] = ()
    absent: str = ""


async def compared(names: Sequence[str]) -> list[Row]:
    """The rows of the gateways named, or of all."""
    rows = []
    if not names or _OURS.name in names:
        rows.append(Row(_OURS, await _played(_OURS.name, OurGateway())))
    for peer in PEERS:
        if names and peer.name not in names:
            continue
        log = _CACHE / f"{peer.file.removesuffix('.py')}.log"
        try:
            async with PeerGateway(peer, _CACHE, log) as gateway:
                rows.append(Row(peer, await _played(peer.name, gateway)))
        except AdapterError as error:
            rows.append(Row(peer, absent=str(error)))
    return rows


async def _played(name: str, adapter: GatewayAdapter) -> list[CaseResult]:
    print(f"== {name}", flush=True)

    def report(result: CaseResult) -> None:
        print("\n".join(lines_of(result)), flush=True)

    return await run_gateway_suite(adapter, report=report)


def table(rows: Sequence[Row]) -> list[str]:
    """The rows in Markdown; `other API`: cases of programs whose API the gateway does not offer."""
    lines = [
        "| gateway | version | APIs | calls: passed | calls: failed | calls: not shown "
        "| tokens: passed | tokens: failed | tokens: not shown | other API |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peer = row.peer
        dialects = ", ".join(peer.dialects) + ("" if peer.streams else ", not streamed")
        counts = [f"ABSENT: {row.absent}", *[""] * 6] if row.absent else _counts(row)
        lines.append(f"| {' | '.join((peer.name, peer.version, dialects, *counts))} |")
    return lines


def _counts(row: Row) -> list[str]:
    programs = {program.program: program for program, _ in select_gateway_cases(())}

    def offered(result: CaseResult) -> bool:
        program = programs[result.name.partition("/")[0]]
        return program.dialect in row.peer.dialects and (row.peer.streams or not program.stream)

    found = Counter((one.suite, one.outcome) for one in row.results if offered(one))
    counts = [found[suite, one] for suite in (SUITE, TOKENS) for one in _OUTCOMES]
    others = sum(one.suite == SUITE and not offered(one) for one in row.results)
    return [str(one) for one in (*counts, others)]


def main() -> int:
    """Compare, print, and say by the exit code whether our own gateway failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "names",
        nargs="*",
        choices=[[], _OURS.name, *(one.name for one in PEERS)],
        help="test only these gateways (default: all)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results to FILE as JSON"
    )
    options = parser.parse_args()
    rows = asyncio.run(compared(options.names))
    print("\n".join(("", *table(rows))))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    failed = any(
        one.outcome == "failed" for row in rows if row.peer is _OURS for one in row.results
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
