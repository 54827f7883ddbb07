"""The metrics of a model service."""

from __future__ import annotations

from typing import Final

from gymmesh_runtime.metrics import counter, gauge, histogram

MODEL_CALLS: Final = counter(
    "gymmesh_model_calls_total",
    "Model calls, by outcome (completed, incomplete, or the error's reason).",
    "model outcome",
)
MODEL_CALL_SECONDS: Final = histogram(
    "gymmesh_model_call_seconds", "Time of a call at the model's endpoint, in seconds.", "model"
)
MODEL_QUEUE_SECONDS: Final = histogram(
    "gymmesh_model_queue_seconds",
    "Time that a call waited in the model service because the limit of concurrent calls was"
    " reached, in seconds.",
    "model",
)
MODEL_WAITING: Final = gauge(
    "gymmesh_model_waiting",
    "Calls that wait in the model service because the limit of concurrent calls is reached.",
    "model",
)
MODEL_FIRST_TOKEN_SECONDS: Final = histogram(
    "gymmesh_model_first_token_seconds",
    "Time from the start of a streamed call at the endpoint to the first piece of the answer, in"
    " seconds.",
    "model",
)
MODEL_TOKENS: Final = counter(
    "gymmesh_model_tokens_total",
    "Tokens of model calls, by direction (input, output).",
    "model direction",
)
MODEL_RETRIES: Final = counter(
    "gymmesh_model_retries_total",
    "Retries of calls at an endpoint, by the reason of the failure that caused the retry.",
    "model reason",
)
MODEL_CONVERSATIONS: Final = counter(
    "gymmesh_model_conversations_total",
    "Calls that send only the new items of a conversation, by outcome (continued; unknown: the"
    " caller had to send the whole conversation).",
    "model outcome",
)
MODEL_CONCURRENCY_LIMIT: Final = gauge(
    "gymmesh_model_concurrency_limit",
    "Current limit of concurrent calls at all endpoints of the model together.",
    "model",
)
MODEL_ENDPOINT_IN_FLIGHT: Final = gauge(
    "gymmesh_model_endpoint_in_flight",
    "Running calls at an endpoint, by the endpoint's position in the configuration, from 0.",
    "model endpoint",
)
MODEL_ENDPOINT_DOWN: Final = gauge(
    "gymmesh_model_endpoint_down",
    "1 while an endpoint gets only probes after too many failures in a row, else 0.",
    "model endpoint",
)
MODEL_ENDPOINT_KV_CACHE: Final = gauge(
    "gymmesh_model_endpoint_kv_cache_ratio",
    "Used share of an endpoint's KV cache, from 0 to 1, if the endpoint reports this share.",
    "model endpoint",
)
MODEL_WEIGHTS_VERSION: Final = gauge(
    "gymmesh_model_weights_version",
    "The version of the model's weights. Absent until a version is known.",
    "model",
)
MODEL_REROUTES: Final = counter(
    "gymmesh_model_reroutes_total",
    "Calls sent to an endpoint that does not hold the rollout's earlier tokens, because the "
    "endpoint that holds these tokens was busy or down.",
    "model cause",
)
MODEL_CACHE_LOOKUPS: Final = counter(
    "gymmesh_model_cache_lookups_total",
    "Calls looked up in a model's response cache, by outcome (hit, miss, damaged, failed).",
    "model outcome",
)
MODEL_SIDE_DATA_BYTES: Final = counter(
    "gymmesh_model_side_data_bytes_total",
    "Bytes of side data, by event (stored: written to files; deleted: removed to stay within the"
    " limits of the folder).",
    "model event",
)
