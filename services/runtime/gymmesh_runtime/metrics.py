"""Every metric of gymmesh: the one place where their names stand.

Dashboards and alerts are built from this file. Names and units follow OpenMetrics' conventions.
Labels have few values: names of services, environments, tools and methods, never ids. The id of a
rollout is in exemplars only, see instruments.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from gymmesh_runtime.telemetry.instruments import Counter, Gauge, Histogram

REGISTRY: Final = CollectorRegistry(auto_describe=True)
# CPU time, memory and open files of the process, under the library's own names (process_…).
ProcessCollector(registry=REGISTRY)

_SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
    300, 600,
)  # fmt: skip
_STAGE_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_CALLS: Final = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200)
_TOKENS: Final = tuple(2**power for power in range(4, 18))
_VERSIONS: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)


# Labels as one text, a blank between two.
def _counter(name: str, about: str, labels: str = "") -> Counter:
    return Counter(name, about, labels.split(), REGISTRY)


def _gauge(name: str, about: str, labels: str = "") -> Gauge:
    return Gauge(name, about, labels.split(), REGISTRY)


def _histogram(
    name: str, about: str, labels: str = "", buckets: Sequence[float] = _SECONDS
) -> Histogram:
    return Histogram(name, about, labels.split(), REGISTRY, buckets)


RPCS: Final = _counter(
    "gymmesh_rpcs_total",
    "Calls served, by method and status code, on every path (direct, mux, gRPC).",
    "method code",
)
RPC_SECONDS: Final = _histogram(
    "gymmesh_rpc_seconds", "Time from a call's arrival to its end, in seconds.", "method"
)
ROLLOUTS: Final = _counter(
    "gymmesh_rollouts_total",
    "Attempts ended, by outcome (completed, failed, cancelled) and boundary of the failure.",
    "agent environment outcome boundary",
)
ROLLOUTS_IN_FLIGHT: Final = _gauge(
    "gymmesh_rollouts_in_flight", "Attempts running in this agent.", "agent"
)
ROLLOUT_SECONDS: Final = _histogram(
    "gymmesh_rollout_seconds", "Wall-clock time of an attempt, in seconds.", "agent environment"
)
ROLLOUT_STAGE_SECONDS: Final = _histogram(
    "gymmesh_rollout_stage_seconds",
    "Where an attempt's time went, in seconds, by stage: queue (waiting in the agent for a place),"
    " create_session, model_queue (waiting in the model service), model, call_tool, next_turn,"
    " verify, close_session. Of calls side by side, each counts.",
    "agent environment stage",
    buckets=_STAGE_SECONDS,
)
ROLLOUT_FAILURES: Final = _counter(
    "gymmesh_rollout_failures_total",
    "Attempts that failed, by boundary and reason (as in docs/errors.md).",
    "agent environment boundary reason",
)
ROLLOUT_MODEL_CALLS: Final = _histogram(
    "gymmesh_rollout_model_calls",
    "Model calls of a completed rollout.",
    "agent environment",
    buckets=_CALLS,
)
ROLLOUT_TOOL_CALLS: Final = _histogram(
    "gymmesh_rollout_tool_calls",
    "Tool calls of a completed rollout.",
    "agent environment",
    buckets=_CALLS,
)
ROLLOUT_OUTPUT_TOKENS: Final = _histogram(
    "gymmesh_rollout_output_tokens",
    "Tokens that models wrote in a completed rollout.",
    "agent environment",
    buckets=_TOKENS,
)
ROLLOUT_WEIGHTS_LAG: Final = _histogram(
    "gymmesh_rollout_weights_lag_versions",
    "How many versions lie between the oldest and the newest weights that a completed rollout met,"
    " where the model service says versions.",
    "agent environment",
    buckets=_VERSIONS,
)
COLLECT_STREAMS: Final = _gauge(
    "gymmesh_collect_streams",
    "Collectors' streams that this agent holds, those within their resume window included.",
    "agent",
)
COLLECT_WAITING: Final = _gauge(
    "gymmesh_collect_waiting", "Attempts that wait in this agent for a place to run.", "agent"
)
COLLECT_WAIT_SECONDS: Final = _histogram(
    "gymmesh_collect_wait_seconds",
    "Time that an attempt waited in this agent for a place to run, in seconds.",
    "agent",
)
COLLECT_CAPACITY: Final = _gauge(
    "gymmesh_collect_capacity",
    "Attempts that this agent runs side by side for collectors, at most.",
    "agent",
)
COLLECT_RECONNECTS: Final = _counter(
    "gymmesh_collect_reconnects_total",
    "Times that a collector lost its connection to an agent with attempts in flight.",
)
MODEL_CALLS: Final = _counter(
    "gymmesh_model_calls_total",
    "Model calls, by outcome (completed, incomplete, or the error's reason).",
    "model outcome",
)
MODEL_CALL_SECONDS: Final = _histogram(
    "gymmesh_model_call_seconds", "Time of a call at the model's endpoint, in seconds.", "model"
)
MODEL_QUEUE_SECONDS: Final = _histogram(
    "gymmesh_model_queue_seconds",
    "Time that a call waited in the model service for a place, in seconds.",
    "model",
)
MODEL_WAITING: Final = _gauge(
    "gymmesh_model_waiting", "Calls that wait in the model service for a place.", "model"
)
MODEL_FIRST_TOKEN_SECONDS: Final = _histogram(
    "gymmesh_model_first_token_seconds",
    "Time from a streamed call's start at the endpoint to the first piece of its answer, in"
    " seconds.",
    "model",
)
MODEL_TOKENS: Final = _counter(
    "gymmesh_model_tokens_total", "Tokens, by direction (input, output).", "model direction"
)
MODEL_RETRIES: Final = _counter(
    "gymmesh_model_retries_total",
    "Calls sent to an endpoint again, by the reason of the failure before.",
    "model reason",
)
MODEL_CONVERSATIONS: Final = _counter(
    "gymmesh_model_conversations_total",
    "Calls that go on with a conversation, by outcome (continued, unknown: sent whole then).",
    "model outcome",
)
TOKEN_FORKS: Final = _counter(
    "gymmesh_token_forks_total",
    "Model calls whose prompt does not begin with the tokens of the call before, by the reason.",
    "model reason",
)
TOKEN_DIVERGENCES: Final = _counter(
    "gymmesh_token_divergences_total",
    "Model calls that broke the exact-token law: no such beginning, and no fork declared.",
    "model",
)
MODEL_CONCURRENCY_LIMIT: Final = _gauge(
    "gymmesh_model_concurrency_limit",
    "Calls at a time that the model's endpoints are given at present.",
    "model",
)
MODEL_ENDPOINT_IN_FLIGHT: Final = _gauge(
    "gymmesh_model_endpoint_in_flight",
    "Calls at an endpoint, by its place in the configuration, from 0.",
    "model endpoint",
)
MODEL_ENDPOINT_DOWN: Final = _gauge(
    "gymmesh_model_endpoint_down",
    "1 while an endpoint is left alone because it failed too often in a row, else 0.",
    "model endpoint",
)
MODEL_ENDPOINT_KV_CACHE: Final = _gauge(
    "gymmesh_model_endpoint_kv_cache_ratio",
    "How full an endpoint's KV cache is, from 0 to 1, where the endpoint says so.",
    "model endpoint",
)
MODEL_WEIGHTS_VERSION: Final = _gauge(
    "gymmesh_model_weights_version",
    "The version of the model's weights, once one is known.",
    "model",
)
MODEL_REROUTES: Final = _counter(
    "gymmesh_model_reroutes_total",
    "Calls sent elsewhere than to the endpoint with their rollout's prefix: it was busy, or down.",
    "model cause",
)
MODEL_CACHE_LOOKUPS: Final = _counter(
    "gymmesh_model_cache_lookups_total",
    "Calls looked up in a model's response cache, by outcome (hit, miss, damaged, failed).",
    "model outcome",
)
TOOL_CALLS: Final = _counter(
    "gymmesh_tool_calls_total",
    "Tool calls answered, by outcome (ok, tool_error, bad_arguments, unknown_tool, fault).",
    "environment tool outcome",
)
TOOL_SECONDS: Final = _histogram(
    "gymmesh_tool_seconds", "Time that a tool ran, in seconds.", "environment tool"
)
ENVIRONMENT_MODEL_CALLS: Final = _counter(
    "gymmesh_environment_model_calls_total",
    "Model calls that environments made (judges, simulated users), by outcome (ok, or a reason).",
    "environment model outcome",
)
SESSIONS_OPEN: Final = _gauge("gymmesh_sessions_open", "Sessions open.", "environment")
SESSIONS_LIMIT: Final = _gauge(
    "gymmesh_sessions_limit", "Sessions that may be open at a time.", "environment"
)
SESSIONS_SWEPT: Final = _counter(
    "gymmesh_sessions_swept_total",
    "Sessions closed because nobody called them for their idle time.",
    "environment",
)
VERIFICATIONS: Final = _counter(
    "gymmesh_verifications_total",
    "Verdicts, by status (verified, pending, skipped, fault).",
    "environment status",
)
VERIFICATION_SECONDS: Final = _histogram(
    "gymmesh_verification_seconds", "Time that a verdict took, in seconds.", "environment"
)
REWARDS: Final = _histogram(
    "gymmesh_rewards",
    "Rewards of verified rollouts. Buckets below 0 allow no _sum and no _count.",
    "environment",
    buckets=(-1.0, -0.5, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999, 1.0),
)
# Two counters in place of a sum, which could go down and would then look like a restart.
REWARDS_ABSOLUTE: Final = _counter(
    "gymmesh_rewards_absolute_total",
    "Sum of the absolute values of the rewards of verified rollouts, by sign (positive, negative).",
    "environment sign",
)
SANDBOX_PLACES: Final = _gauge(
    "gymmesh_sandbox_places", "Programs that this process's sandboxes run at a time, at most."
)
SANDBOX_PLACES_BUSY: Final = _gauge(
    "gymmesh_sandbox_places_busy", "Programs that run in sandboxes."
)
SANDBOX_WAIT_SECONDS: Final = _histogram(
    "gymmesh_sandbox_wait_seconds",
    "Waits for a place in a sandbox where none was free, in seconds.",
)
SANDBOX_STARTS: Final = _counter(
    "gymmesh_sandbox_starts_total",
    "Programs begun in sandboxes: cold, or warm (started before they were asked for).",
    "start",
)
SANDBOX_ENDINGS: Final = _counter(
    "gymmesh_sandbox_endings_total",
    "Programs that ended in sandboxes: exited by themselves, or killed for their time (timed_out),"
    " their output (output_limit) or their memory (killed), or stopped with what used them;"
    " failed: the sandbox's own fault.",
    "ending",
)
WORKERS: Final = _gauge(
    "gymmesh_workers", "Worker processes that environments may use at a time, at most."
)
WORKERS_BUSY: Final = _gauge("gymmesh_workers_busy", "Worker processes of environments at work.")
WORKER_WAIT_SECONDS: Final = _histogram(
    "gymmesh_worker_wait_seconds", "Waits for a worker process where none was free, in seconds."
)
WORKER_KILLS: Final = _counter(
    "gymmesh_worker_kills_total",
    "Worker processes lost: killed for their time (timeout) or with their caller (cancelled), or"
    " dead by themselves (crashed).",
    "cause",
)
STALE_EVENTS: Final = _counter(
    "gymmesh_stale_events_total", "Events of superseded attempts that a collector dropped."
)
COLLECTOR_ROLLOUTS: Final = _counter(
    "gymmesh_collector_rollouts_total",
    "Rollouts whose outcome this collector has on disk, by outcome (completed, failed) and boundary"
    " of the failure.",
    "outcome boundary",
)
COLLECTOR_ROLLOUTS_REQUESTED: Final = _gauge(
    "gymmesh_collector_rollouts_requested",
    "Rollouts that the run is to have, those of earlier sessions included.",
)
COLLECTOR_ROLLOUTS_KEPT: Final = _gauge(
    "gymmesh_collector_rollouts_kept", "Rollouts of the run that earlier sessions have put on disk."
)
COLLECTOR_IN_FLIGHT: Final = _gauge(
    "gymmesh_collector_in_flight", "Attempts sent to agents and not over."
)
COLLECTOR_CONCURRENCY: Final = _gauge(
    "gymmesh_collector_concurrency",
    "Attempts that the collector has in flight at most, at present.",
)
COLLECTOR_RETRIES: Final = _counter(
    "gymmesh_collector_retries_total",
    "Attempts that failed and are followed by another one, by boundary and reason.",
    "boundary reason",
)
COLLECTOR_RETRIES_WAITING: Final = _gauge(
    "gymmesh_collector_retries_waiting", "Rollouts that wait for their next attempt."
)
COLLECTOR_ENDING: Final = _gauge(
    "gymmesh_collector_ending", "Rollouts over whose outcome waits for the disk or for a judge."
)
COLLECTOR_TOKENS: Final = _counter(
    "gymmesh_collector_tokens_total",
    "Tokens of completed rollouts on disk, by direction (input, output).",
    "direction",
)
JOURNAL_COMMIT_SECONDS: Final = _histogram(
    "gymmesh_journal_commit_seconds",
    "Time to put a group of outcomes on disk, fsync included, in seconds.",
)
GROUPS_WAITING: Final = _gauge(
    "gymmesh_groups_waiting", "Finished groups that no trainer has acknowledged."
)
GROUPS: Final = _counter(
    "gymmesh_groups_total",
    "Groups for trainers: finished, acknowledged, or stale (too old when their turn came).",
    "event",
)
CERTIFICATE_BEGINS: Final = _gauge(
    "gymmesh_certificate_not_before_timestamp_seconds",
    "From when the certificate in use is valid, in Unix time, by file: certificate, and authority"
    " (of several, the one that ends last).",
    "file",
)
CERTIFICATE_ENDS: Final = _gauge(
    "gymmesh_certificate_not_after_timestamp_seconds",
    "Until when the certificate in use is valid, in Unix time, by file as above.",
    "file",
)
EVENT_LOOP_LAG_SECONDS: Final = _gauge(
    "gymmesh_event_loop_lag_seconds", "How late the event loop ran its last heartbeat, in seconds."
)
INSTANCES: Final = _gauge(
    "gymmesh_instances",
    "Instances in the registry, by service and health (serving, draining, not_serving, unknown).",
    "service health",
)
REGISTRY_EXPIRED: Final = _counter(
    "gymmesh_registry_expired_total",
    "Instances taken off the registry because nobody renewed their lease.",
)
REGISTRY_WATCHES: Final = _gauge("gymmesh_registry_watches", "Watches of the registry open.")
REGISTRY_VIEW_AGE: Final = _gauge(
    "gymmesh_registry_view_age_seconds",
    "How long a registry outside, such as Consul, has not confirmed this view of it; 0: it does.",
)
XDS_STREAMS: Final = _gauge("gymmesh_xds_streams", "Streams of xDS clients open.")
XDS_PUSHES: Final = _counter(
    "gymmesh_xds_pushes_total",
    "Responses sent to xDS clients, by type (Listener, RouteConfiguration, Cluster,"
    " ClusterLoadAssignment).",
    "type",
)
XDS_PUSH_SECONDS: Final = _histogram(
    "gymmesh_xds_push_seconds",
    "Time from a change of the registry until a client's stream has taken it, in seconds, by type.",
    "type",
)
XDS_NACKS: Final = _counter(
    "gymmesh_xds_nacks_total", "Responses that xDS clients refused, by type.", "type"
)
XDS_VIEW_VERSION: Final = _gauge(
    "gymmesh_xds_view_version",
    "The version of what xDS clients are offered; grows with every change.",
)
MUX_STREAMS: Final = _gauge(
    "gymmesh_mux_streams",
    "Mux streams open, by this process's side of them (client, server).",
    "side",
)
MUX_BROKEN: Final = _counter(
    "gymmesh_mux_broken_total", "Mux streams that broke before their time, by side.", "side"
)
MUX_BATCHES: Final = _counter(
    "gymmesh_mux_batches_total", "Batches of frames sent over mux streams, by side.", "side"
)
MUX_FRAMES: Final = _counter(
    "gymmesh_mux_frames_total",
    "Frames sent over mux streams, by side; per batch, they say how well batching works.",
    "side",
)
