"""The resource services: sessions, tools, verdicts, sandboxes and worker processes; and the sandbox
services.
"""

from __future__ import annotations

from typing import Final

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.observe.families import FAMILIES as m
from deploy.observe.panels import chosen, gauges, p95, percentiles, rates, waits
from deploy.observe.rewards import mean_reward

_ENVIRONMENT: Final = Variable("environment", m.SESSIONS_OPEN)
_scope: Final = chosen(_ENVIRONMENT)

_SESSIONS: Final = Row(
    "Sessions",
    [
        Panel(
            "Sessions open",
            gauges(_scope, m.SESSIONS_OPEN, "environment"),
            "Sessions open.",
            width=6,
        ),
        Panel(
            "Sessions open, of the limit",
            [
                Query(
                    f"{_scope.gauge(m.SESSIONS_OPEN, 'environment')}"
                    f" / ({_scope.gauge(m.SESSIONS_LIMIT, 'environment')} > 0)",
                    "{{environment}}",
                )
            ],
            "Open sessions as a share of the limit, if there is one. At 100 %, new sessions are"
            " refused.",
            "percentunit",
            width=6,
        ),
        Panel(
            "Sessions closed as abandoned",
            rates(_scope, m.SESSIONS_SWEPT, "environment"),
            "Sessions per second that were closed because no agent called them: their agents were"
            " lost.",
            "ops",
            width=6,
        ),
        Panel(
            "Model calls by environments",
            rates(_scope, m.ENVIRONMENT_MODEL_CALLS, "environment", "model", "outcome"),
            "Calls of judges and simulated users per second.",
            "ops",
            "areas",
            width=6,
        ),
    ],
)

_TOOLS: Final = Row(
    "Tools",
    [
        Panel(
            "Tool calls by outcome",
            rates(_scope, m.TOOL_CALLS, "outcome"),
            "Tool calls per second. A fault is the environment's; the policy causes all other"
            " outcomes.",
            "ops",
            "areas",
        ),
        Panel(
            "Tool calls by tool",
            rates(_scope, m.TOOL_CALLS, "environment", "tool"),
            "Tool calls per second.",
            "ops",
        ),
        Panel(
            "Time of a tool call, 95th percentile",
            p95(_scope, m.TOOL_SECONDS, "environment", "tool"),
            "The time of one tool call.",
            "s",
        ),
    ],
)

_VERDICTS: Final = Row(
    "Verdicts",
    [
        Panel(
            "Verdicts by status",
            rates(_scope, m.VERIFICATIONS, "environment", "status"),
            "Verdicts per second. A fault means that the verifier failed: these rollouts have no"
            " reward.",
            "ops",
            "areas",
        ),
        Panel(
            "Time of a verdict",
            percentiles(_scope, m.VERIFICATION_SECONDS, "environment"),
            "The time of one verdict.",
            "s",
        ),
        Panel(
            "Mean reward of verified rollouts",
            [Query(mean_reward(_scope, "environment"), "{{environment}}")],
            "The mean over verified rollouts.",
            least=None,
        ),
    ],
)

_SANDBOXES: Final = Row(
    "Sandboxes",
    [
        Panel(
            "Sandboxes running, and at most",
            [
                Query(_scope.gauge(m.SANDBOX_PLACES_BUSY), "busy"),
                Query(_scope.gauge(m.SANDBOX_PLACES), "all"),
            ],
            "Programs that run in sandboxes, and the most that may run at a time.",
            width=6,
        ),
        Panel(
            "Wait for a sandbox",
            waits(_scope, m.SANDBOX_WAIT_SECONDS, m.SANDBOX_PLACES),
            "The time that a program waited; 0 while none waits.",
            "s",
            width=6,
        ),
        Panel(
            "Sandbox starts",
            rates(_scope, m.SANDBOX_STARTS, "start"),
            "Programs started per second. Warm ones were started before they were requested.",
            "ops",
            "areas",
            width=6,
        ),
        Panel(
            "Sandbox endings",
            rates(_scope, m.SANDBOX_ENDINGS, "ending"),
            "Programs by their end: exited, or killed at a limit of time, output or memory;"
            " failed is a fault of the sandbox.",
            "ops",
            "areas",
            width=6,
        ),
    ],
)

_SANDBOX_SERVICES: Final = Row(
    "Sandbox services",
    [
        Panel(
            "Sandboxes of services, and places",
            [
                *gauges(_scope, m.SANDBOXES_RUNNING, "service"),
                Query(_scope.gauge(m.SANDBOXES_PLACES, "service"), "{{service}} places"),
                Query(_scope.gauge(m.SANDBOXES_WAITING, "service"), "{{service}} waiting"),
            ],
            "Sandboxes that run, places for them (fewer while memory or processors are short), and"
            " calls that wait for one.",
            width=6,
        ),
        Panel(
            "Sandboxes created and ended",
            [
                Query(_scope.rate(m.SANDBOXES_CREATED, "outcome"), "created: {{outcome}}"),
                Query(_scope.rate(m.SANDBOXES_ENDED, "cause"), "ended: {{cause}}"),
                Query(_scope.rate(m.SANDBOXES_LEFT, "cause"), "left over: {{cause}}"),
            ],
            "In a second. Expired ones were not renewed: their owners were lost. Left over are"
            " those of a service that was killed, and those that could not be ended.",
            "ops",
            width=6,
        ),
        Panel(
            "Time to a sandbox, and of a program in it",
            [
                Query(_scope.quantile(0.95, m.SANDBOXES_START_SECONDS), "start p95"),
                Query(_scope.quantile(0.95, m.SANDBOXES_EXEC_SECONDS), "program p95"),
            ],
            "From a place for a sandbox until it is ready; and from the start to the end of a"
            " program that Exec ran.",
            "s",
            width=6,
        ),
        Panel(
            "Processes, and output dropped",
            [
                Query(_scope.gauge(m.SANDBOXES_PROCESSES), "processes"),
                Query(_scope.rate(m.SANDBOXES_OUTPUT_DROPPED), "bytes dropped in a second"),
            ],
            "Processes that run in sandboxes, and their dropped output beyond the limit.",
            width=6,
        ),
    ],
)

_WORKERS: Final = Row(
    "Worker processes",
    [
        Panel(
            "Worker processes busy, of all",
            [Query(_scope.gauge(m.WORKERS_BUSY), "busy"), Query(_scope.gauge(m.WORKERS), "all")],
            "Processes in which environments run code that may hang or crash.",
        ),
        Panel(
            "Wait for a worker process",
            percentiles(_scope, m.WORKER_WAIT_SECONDS),
            "The time that a call waited for a worker process.",
            "s",
        ),
        Panel(
            "Worker processes lost",
            rates(_scope, m.WORKER_KILLS, "cause"),
            "Worker processes that were killed at their time limit or with their caller, or that"
            " crashed.",
            "ops",
        ),
    ],
)

ENVIRONMENTS: Final = Dashboard(
    "environments",
    "Environments",
    "Sessions, tools, verdicts, sandboxes and worker processes of the resource services; sandbox"
    " services.",
    [_ENVIRONMENT],
    [_SESSIONS, _TOOLS, _VERDICTS, _SANDBOXES, _SANDBOX_SERVICES, _WORKERS],
)
