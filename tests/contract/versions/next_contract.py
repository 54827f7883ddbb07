"""Makes the stubs of the next minor version: what may be added is added once, somewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tools.generate import generate
from tools.protos import PROTO_ROOT

VERSION: Final = "1.1"

#: Per file: a text that stands there once, and what comes in its place.
ADDITIONS: Final = [
    (
        "rollout/v1/rollout.proto",
        "  // Labels for mixing, filtering and reports.\n",
        "  // Added: how much it matters.\n  double importance = 90;\n"
        "  // Labels for mixing, filtering and reports.\n",
    ),
    (
        "rollout/v1/rollout.proto",
        "    // The attempt began.\n    Started started = 10;\n",
        "    // The attempt began.\n    Started started = 10;\n"
        "    // Added, ignorable.\n    Annotation noted = 90;\n"
        "    // Added, not ignorable.\n    Annotation moved = 91;\n",
    ),
    (
        "rollout/v1/rollout.proto",
        "  // Not used on the wire.\n  STOP_REASON_UNSPECIFIED = 0;\n",
        "  // Not used on the wire.\n  STOP_REASON_UNSPECIFIED = 0;\n"
        "  // Added.\n  STOP_REASON_BORED = 90;\n",
    ),
    (
        "rollout/v1/rollout.proto",
        "  // Turns taken by the environment.\n  uint32 turns = 3;\n",
        "  // Turns taken by the environment.\n  uint32 turns = 3;\n"
        "  // Added.\n  uint32 detours = 90;\n",
    ),
    (
        "agent/v1/agent.proto",
        "  // Do not verify; the verification is SKIPPED.\n",
        "  // Added.\n  string mood = 90;\n  // Do not verify; the verification is SKIPPED.\n",
    ),
    (
        "agent/v1/agent.proto",
        "  // Describes the agent.\n",
        "  // Added.\n"
        "  rpc DescribeAgent(DescribeAgentRequest) returns (DescribeAgentResponse);\n\n"
        "  // Describes the agent.\n",
    ),
    (
        "agent/v1/agent.proto",
        "// Asks for the agent's description.\nmessage GetAgentRequest {}\n",
        "// Asks for the agent's description.\nmessage GetAgentRequest {}\n\n"
        "// Added.\nmessage DescribeAgentRequest {}\n\n"
        "// Added.\nmessage DescribeAgentResponse {}\n",
    ),
    (
        "discovery/v1/discovery.proto",
        "  HEALTH_SERVING = 1;\n",
        "  HEALTH_SERVING = 1;\n  // Added.\n  HEALTH_TIRED = 90;\n",
    ),
]


def write_next_stubs(scratch: Path) -> Path:
    """Writes the stubs under `scratch`; returns the folder to be put before all others."""
    root, stubs = scratch / "proto", scratch / "stubs"
    shutil.copytree(PROTO_ROOT / "gymmesh", root / "gymmesh")
    for name, old, new in ADDITIONS:
        path = root / "gymmesh" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has not once: {old}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    stubs.mkdir()
    generate(root, stubs)
    return stubs
