"""What a gateway counts."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

GATEWAY_REQUESTS: Final = counter(
    "gymmesh_gateway_requests_total",
    "Requests of programs to an agent's gateway, by dialect and outcome. The outcomes are answered,"
    " beside (a list of models or a token count), cut (the program had disconnected), and the kinds"
    " of refusal (invalid, too_large, unauthorized, not_found, stop, context_length, again).",
    "agent dialect outcome",
)
GATEWAY_OVERHEAD_SECONDS: Final = histogram(
    "gymmesh_gateway_overhead_seconds",
    "Time that the gateway itself spent on an answered request, in seconds, without the model call."
    " The gateway reads the request, finds the request's place in the rollout's conversations, and"
    " writes the answer.",
    "agent",
)
GATEWAY_CONNECTIONS: Final = gauge(
    "gymmesh_gateway_connections", "Connections of programs to an agent's gateway.", "agent"
)
