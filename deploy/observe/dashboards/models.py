"""The model services: calls, tokens, queues, endpoints, exact tokens."""

from __future__ import annotations

from typing import Final

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.observe.families import FAMILIES as m
from deploy.observe.panels import chosen, gauges, number, percentiles, rates, waits

_MODEL: Final = Variable("model", m.MODEL_CALLS)
_scope: Final = chosen(_MODEL)
_OUTPUT: Final = 'direction="output"'
_FAULTS: Final = 'outcome!~"completed|incomplete"'

_GLANCE: Final = Row(
    "At a glance",
    [
        number("Model calls / s", _scope.rate(m.MODEL_CALLS), "Answered model calls per second."),
        number(
            "Output tokens / s",
            _scope.rate(m.MODEL_TOKENS, where=_OUTPUT),
            "Tokens written per second.",
        ),
        number(
            "Share of calls that failed",
            _scope.share(m.MODEL_CALLS, of=_FAULTS),
            "The share of calls that ended with an error.",
            "percentunit",
        ),
        number(
            "Calls waiting",
            _scope.gauge(m.MODEL_WAITING),
            "Calls that wait in the model services for a place.",
        ),
        number(
            "Endpoints taken out of use",
            _scope.gauge(m.MODEL_ENDPOINT_DOWN),
            "Endpoints that get no calls except probes because they failed too often in a row.",
        ),
        Panel(
            "Version of the weights",
            gauges(_scope, m.MODEL_WEIGHTS_VERSION, "model", how="max"),
            "The newest version of the weights, if it is known.",
            draw="number",
            width=4,
        ),
    ],
)

_CALLS: Final = Row(
    "Calls",
    [
        Panel(
            "Calls by outcome",
            rates(_scope, m.MODEL_CALLS, "outcome"),
            "Calls per second, by outcome: completed, incomplete (cut by a limit), or the reason "
            "of the error.",
            "ops",
            "areas",
        ),
        Panel(
            "Time at the endpoint",
            percentiles(_scope, m.MODEL_CALL_SECONDS, "model"),
            "The time that a call takes at the model's endpoint.",
            "s",
            exemplars=True,
        ),
        Panel(
            "Time to the first token",
            percentiles(_scope, m.MODEL_FIRST_TOKEN_SECONDS, "model"),
            "The time from a streamed call's start at the endpoint to the first piece of its "
            "answer.",
            "s",
        ),
        Panel(
            "Tokens read and written / s",
            rates(_scope, m.MODEL_TOKENS, "model", "direction"),
            "Tokens read and written per second.",
            "ops",
        ),
        Panel(
            "Wait in the model service",
            waits(_scope, m.MODEL_QUEUE_SECONDS, m.MODEL_WAITING, "model"),
            "The time that a call waited for a place at an endpoint. 0 while no call waits.",
            "s",
        ),
        Panel(
            "Calls at a time",
            [
                Query(_scope.gauge(m.MODEL_ENDPOINT_IN_FLIGHT, "model"), "{{model}} at endpoints"),
                Query(_scope.gauge(m.MODEL_WAITING, "model"), "{{model}} waiting"),
                Query(_scope.gauge(m.MODEL_CONCURRENCY_LIMIT, "model"), "{{model}} limit"),
            ],
            "Calls at the endpoints, waiting calls, and the limit: the maximum number of calls at "
            "the endpoints at the same time.",
        ),
    ],
)

_ENDPOINTS: Final = Row(
    "Endpoints",
    [
        Panel(
            "Calls at each endpoint",
            gauges(_scope, m.MODEL_ENDPOINT_IN_FLIGHT, "model", "endpoint"),
            "Calls at each endpoint, by its position in the configuration.",
        ),
        Panel(
            "Endpoints out of use",
            gauges(_scope, m.MODEL_ENDPOINT_DOWN, "model", "endpoint", how="max"),
            "1 while an endpoint gets no calls except probes because it failed too often in a row.",
            most=1,
        ),
        Panel(
            "KV cache in use",
            gauges(_scope, m.MODEL_ENDPOINT_KV_CACHE, "model", "endpoint", how="max"),
            "The share of the KV cache that is in use, if the endpoint reports it.",
            "percentunit",
            most=1,
        ),
        Panel(
            "Calls retried",
            rates(_scope, m.MODEL_RETRIES, "model", "reason"),
            "Retried calls per second, by the reason of the previous failure.",
            "ops",
        ),
        Panel(
            "Calls away from their prefix",
            rates(_scope, m.MODEL_REROUTES, "model", "cause"),
            "Calls that were not sent to the endpoint that has the rollout's prefix in its cache.",
            "ops",
        ),
        Panel(
            "Response cache hits and misses",
            rates(_scope, m.MODEL_CACHE_LOOKUPS, "outcome"),
            "Calls looked up in a model's response cache.",
            "ops",
            "areas",
        ),
        Panel(
            "Side data written and deleted",
            rates(_scope, m.MODEL_SIDE_DATA_BYTES, "model", "event"),
            "Bytes per second that models store in their folders of side data, and delete to stay"
            " within their bounds.",
            "Bps",
            width=24,
        ),
    ],
)

_TOKENS: Final = Row(
    "Exact tokens",
    [
        Panel(
            "Calls in conversations",
            rates(_scope, m.MODEL_CONVERSATIONS, "outcome"),
            "Calls that continue a conversation. If the model service has dropped the "
            "conversation, the caller sends the whole conversation, which costs more.",
            "ops",
            "areas",
        ),
        Panel(
            "Forks",
            rates(_scope, m.TOKEN_FORKS, "model", "reason"),
            "Calls whose prompt does not begin with the tokens of the previous call, and that"
            " declare this as a fork.",
            "ops",
        ),
        Panel(
            "Divergences from exact tokens",
            rates(_scope, m.TOKEN_DIVERGENCES, "model"),
            "Calls that broke the exact-token law: their prompt did not begin with the tokens of "
            "the previous call, and they declared no fork. The number should be 0.",
            "ops",
        ),
    ],
)

MODELS: Final = Dashboard(
    "models",
    "Model services",
    "Calls, tokens, queues, endpoints, and the exactness of tokens.",
    [_MODEL],
    [_GLANCE, _CALLS, _ENDPOINTS, _TOKENS],
)
