"""Every metric of gymmesh: the one place where their names stand.

Dashboards and alerts are built from this file. Labels have few values: names
of services, environments, tools and methods, never ids.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from gymmesh_runtime.instruments import Counter, Gauge, Histogram

REGISTRY: Final = CollectorRegistry(auto_describe=True)

_SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
    300, 600,
)  # fmt: skip

RPCS: Final = Counter(
    "gymmesh_rpcs_total",
    "Calls served, by method and status code, on every path (direct, mux, gRPC).",
    ["method", "code"],
    registry=REGISTRY,
)
RPC_SECONDS: Final = Histogram(
    "gymmesh_rpc_seconds",
    "Time from a call's arrival to its end, in seconds.",
    ["method"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
ROLLOUTS: Final = Counter(
    "gymmesh_rollouts_total",
    "Attempts ended, by outcome (completed, failed, cancelled) and boundary of the failure.",
    ["agent", "environment", "outcome", "boundary"],
    registry=REGISTRY,
)
ROLLOUTS_IN_FLIGHT: Final = Gauge(
    "gymmesh_rollouts_in_flight",
    "Attempts running in this agent.",
    ["agent"],
    registry=REGISTRY,
)
ROLLOUT_SECONDS: Final = Histogram(
    "gymmesh_rollout_seconds",
    "Wall-clock time of an attempt, in seconds.",
    ["agent", "environment"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
COLLECT_STREAMS: Final = Gauge(
    "gymmesh_collect_streams",
    "Collectors' streams that this agent holds, those within their resume window included.",
    ["agent"],
    registry=REGISTRY,
)
COLLECT_WAITING: Final = Gauge(
    "gymmesh_collect_waiting",
    "Attempts that wait in this agent for a place to run.",
    ["agent"],
    registry=REGISTRY,
)
COLLECT_RECONNECTS: Final = Counter(
    "gymmesh_collect_reconnects_total",
    "Times that a collector lost its connection to an agent with attempts in flight.",
    [],
    registry=REGISTRY,
)
MODEL_CALLS: Final = Counter(
    "gymmesh_model_calls_total",
    "Model calls, by outcome (completed, incomplete, or the error's reason).",
    ["model", "outcome"],
    registry=REGISTRY,
)
MODEL_CALL_SECONDS: Final = Histogram(
    "gymmesh_model_call_seconds",
    "Time of a call at the model's endpoint, in seconds.",
    ["model"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
MODEL_QUEUE_SECONDS: Final = Histogram(
    "gymmesh_model_queue_seconds",
    "Time that a call waited in the model service for a place, in seconds.",
    ["model"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
MODEL_TOKENS: Final = Counter(
    "gymmesh_model_tokens_total",
    "Tokens, by direction (input, output).",
    ["model", "direction"],
    registry=REGISTRY,
)
MODEL_RETRIES: Final = Counter(
    "gymmesh_model_retries_total",
    "Calls sent to an endpoint again, by the reason of the failure before.",
    ["model", "reason"],
    registry=REGISTRY,
)
MODEL_CONVERSATIONS: Final = Counter(
    "gymmesh_model_conversations_total",
    "Calls that go on with a conversation, by outcome (continued, unknown: sent whole then).",
    ["model", "outcome"],
    registry=REGISTRY,
)
TOKEN_FORKS: Final = Counter(
    "gymmesh_token_forks_total",
    "Model calls whose prompt does not begin with the tokens of the call before, by the reason.",
    ["model", "reason"],
    registry=REGISTRY,
)
TOKEN_DIVERGENCES: Final = Counter(
    "gymmesh_token_divergences_total",
    "Model calls that broke the exact-token law: no such beginning, and no fork declared.",
    ["model"],
    registry=REGISTRY,
)
MODEL_CONCURRENCY_LIMIT: Final = Gauge(
    "gymmesh_model_concurrency_limit",
    "Calls at a time that the model's endpoints are given at present.",
    ["model"],
    registry=REGISTRY,
)
MODEL_ENDPOINT_IN_FLIGHT: Final = Gauge(
    "gymmesh_model_endpoint_in_flight",
    "Calls at an endpoint, by its place in the configuration, from 0.",
    ["model", "endpoint"],
    registry=REGISTRY,
)
MODEL_ENDPOINT_DOWN: Final = Gauge(
    "gymmesh_model_endpoint_down",
    "1 while an endpoint is left alone because it failed too often in a row, else 0.",
    ["model", "endpoint"],
    registry=REGISTRY,
)
MODEL_REROUTES: Final = Counter(
    "gymmesh_model_reroutes_total",
    "Calls sent elsewhere than to the endpoint with their rollout's prefix: it was busy, or down.",
    ["model", "cause"],
    registry=REGISTRY,
)
MODEL_CACHE_LOOKUPS: Final = Counter(
    "gymmesh_model_cache_lookups_total",
    "Calls looked up in a model's response cache, by outcome (hit, miss, damaged, failed).",
    ["model", "outcome"],
    registry=REGISTRY,
)
TOOL_CALLS: Final = Counter(
    "gymmesh_tool_calls_total",
    "Tool calls answered, by outcome (ok, tool_error, bad_arguments, unknown_tool, fault).",
    ["environment", "tool", "outcome"],
    registry=REGISTRY,
)
TOOL_SECONDS: Final = Histogram(
    "gymmesh_tool_seconds",
    "Time that a tool ran, in seconds.",
    ["environment", "tool"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
ENVIRONMENT_MODEL_CALLS: Final = Counter(
    "gymmesh_environment_model_calls_total",
    "Model calls that environments made (judges, simulated users), by outcome (ok, or a reason).",
    ["environment", "model", "outcome"],
    registry=REGISTRY,
)
SESSIONS_OPEN: Final = Gauge(
    "gymmesh_sessions_open", "Sessions open.", ["environment"], registry=REGISTRY
)
SESSIONS_SWEPT: Final = Counter(
    "gymmesh_sessions_swept_total",
    "Sessions closed because nobody called them for their idle time.",
    ["environment"],
    registry=REGISTRY,
)
VERIFICATIONS: Final = Counter(
    "gymmesh_verifications_total",
    "Verdicts, by status (verified, pending, skipped, fault).",
    ["environment", "status"],
    registry=REGISTRY,
)
VERIFICATION_SECONDS: Final = Histogram(
    "gymmesh_verification_seconds",
    "Time that a verdict took, in seconds.",
    ["environment"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
REWARDS: Final = Histogram(
    "gymmesh_rewards",
    "Rewards of verified rollouts.",
    ["environment"],
    buckets=(-1.0, -0.5, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999, 1.0),
    registry=REGISTRY,
)
STALE_EVENTS: Final = Counter(
    "gymmesh_stale_events_total",
    "Events of superseded attempts that a collector dropped.",
    [],
    registry=REGISTRY,
)
EVENT_LOOP_LAG_SECONDS: Final = Gauge(
    "gymmesh_event_loop_lag_seconds",
    "How late the event loop ran its last heartbeat, in seconds.",
    [],
    registry=REGISTRY,
)
INSTANCES: Final = Gauge(
    "gymmesh_instances",
    "Live instances in the registry, by service.",
    ["service"],
    registry=REGISTRY,
)
REGISTRY_VIEW_AGE: Final = Gauge(
    "gymmesh_registry_view_age_seconds",
    "How long a registry outside, such as Consul, has not confirmed this view of it; 0: it does.",
    [],
    registry=REGISTRY,
)
XDS_STREAMS: Final = Gauge(
    "gymmesh_xds_streams", "Streams of xDS clients open.", [], registry=REGISTRY
)
XDS_PUSHES: Final = Counter(
    "gymmesh_xds_pushes_total",
    "Responses sent to xDS clients, by type (Listener, RouteConfiguration, Cluster,"
    " ClusterLoadAssignment).",
    ["type"],
    registry=REGISTRY,
)
XDS_NACKS: Final = Counter(
    "gymmesh_xds_nacks_total",
    "Responses that xDS clients refused, by type.",
    ["type"],
    registry=REGISTRY,
)
XDS_VIEW_VERSION: Final = Gauge(
    "gymmesh_xds_view_version",
    "The version of what xDS clients are offered; grows with every change.",
    [],
    registry=REGISTRY,
)
MUX_STREAMS: Final = Gauge(
    "gymmesh_mux_streams",
    "Mux streams open, by this process's side of them (client, server).",
    ["side"],
    registry=REGISTRY,
)
MUX_BROKEN: Final = Counter(
    "gymmesh_mux_broken_total",
    "Mux streams that broke before their time, by side.",
    ["side"],
    registry=REGISTRY,
)
MUX_BATCHES: Final = Counter(
    "gymmesh_mux_batches_total",
    "Batches of frames sent over mux streams, by side.",
    ["side"],
    registry=REGISTRY,
)
MUX_FRAMES: Final = Counter(
    "gymmesh_mux_frames_total",
    "Frames sent over mux streams, by side; per batch, they say how well batching works.",
    ["side"],
    registry=REGISTRY,
)
