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
            "The share of the sessions that may be open, where there is a limit: at 100 % new ones"
            " are refused.",
            "percentunit",
            width=6,
        ),
        Panel(
            "Sessions closed as abandoned",
            rates(_scope, m.SESSIONS_SWEPT, "environment"),
            "Sessions closed in a second because nobody called them: their agents were lost.",
            "ops",
            width=6,
        ),
        Panel(
            "Model calls by environments",
            rates(_scope, m.ENVIRONMENT_MODEL_CALLS, "environment", "model", "outcome"),
            "Of judges and simulated users, in a second.",
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
            "In a second. A fault is the environment's; the rest is the policy's doing.",
            "ops",
            "areas",
        ),
        Panel(
            "Tool calls by tool",
            rates(_scope, m.TOOL_CALLS, "environment", "tool"),
            "In a second.",
            "ops",
        ),
        Panel(
            "Time of a tool call, 95th percentile",
            p95(_scope, m.TOOL_SECONDS, "environment", "tool"),
            "Of one call.",
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
            "In a second. A fault is a verifier that failed: those rollouts have no reward.",
            "ops",
            "areas",
        ),
        Panel(
            "Time of a verdict",
            percentiles(_scope, m.VERIFICATION_SECONDS, "environment"),
            "Of one verdict.",
            "s",
        ),
        Panel(
            "Mean reward of verified rollouts",
            [Query(mean_reward(_scope, "environment"), "{{environment}}")],
            "Of verified rollouts.",
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
            "Programs that run in sandboxes, and how many may at a time.",
            width=6,
        ),
        Panel(
            "Wait for a sandbox",
            waits(_scope, m.SANDBOX_WAIT_SECONDS, m.SANDBOX_PLACES),
            "Time that a program waited; 0 while none waits.",
            "s",
            width=6,
        ),
        Panel(
            "Sandbox starts",
            rates(_scope, m.SANDBOX_STARTS, "start"),
            "Programs begun in a second: warm ones had been started before they were asked for.",
            "ops",
            "areas",
            width=6,
        ),
        Panel(
            "Sandbox endings",
            rates(_scope, m.SANDBOX_ENDINGS, "ending"),
            "How they ended: by themselves, or for their time, output or memory; failed is the"
            " sandbox's own fault.",
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
            "Processes that run in sandboxes, and what they wrote beyond what is kept.",
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
            "Processes in which environments run what may hang or crash.",
        ),
        Panel(
            "Wait for a worker process",
            percentiles(_scope, m.WORKER_WAIT_SECONDS),
            "Time that a call waited.",
            "s",
        ),
        Panel(
            "Worker processes lost",
            rates(_scope, m.WORKER_KILLS, "cause"),
            "Killed for their time or with their caller, or dead by themselves.",
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
