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
            "Open sessions, by environment.",
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
            "Open sessions as a share of the limit, if there is a limit. At 100 %, the "
            "environment refuses new sessions.",
            "percentunit",
            width=6,
        ),
        Panel(
            "Sessions closed as abandoned",
            rates(_scope, m.SESSIONS_SWEPT, "environment"),
            "Sessions per second that were closed because no agent called them any more. Usually "
            "their agents were lost.",
            "ops",
            width=6,
        ),
        Panel(
            "Model calls by environments",
            rates(_scope, m.ENVIRONMENT_MODEL_CALLS, "environment", "model", "outcome"),
            "Calls per second that environments make to judges and simulated users.",
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
            "Tool calls per second. The outcome `fault` is a mistake of the environment's code. "
            "The policy causes all other outcomes.",
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
            "Verdicts per second. The status `fault` means that the verifier failed. Rollouts with "
            "this status have no reward.",
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
            "The mean reward of verified rollouts.",
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
            "Programs that run in sandboxes, and the maximum that may run at the same time.",
            width=6,
        ),
        Panel(
            "Wait for a sandbox",
            waits(_scope, m.SANDBOX_WAIT_SECONDS, m.SANDBOX_PLACES),
            "The time that a program waited for a sandbox. 0 while no program waits.",
            "s",
            width=6,
        ),
        Panel(
            "Sandbox starts",
            rates(_scope, m.SANDBOX_STARTS, "start"),
            "Programs started per second. A warm sandbox was started before the program was "
            "requested.",
            "ops",
            "areas",
            width=6,
        ),
        Panel(
            "Sandbox endings",
            rates(_scope, m.SANDBOX_ENDINGS, "ending"),
            "Programs by their end: exited, or killed at a limit of time, output or memory. "
            "Failed means that the sandbox failed.",
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
            "Running sandboxes, places for sandboxes (fewer while memory or processors are "
            "short), and calls that wait for a place.",
            width=6,
        ),
        Panel(
            "Sandboxes created and ended",
            [
                Query(_scope.rate(m.SANDBOXES_CREATED, "outcome"), "created: {{outcome}}"),
                Query(_scope.rate(m.SANDBOXES_ENDED, "cause"), "ended: {{cause}}"),
                Query(_scope.rate(m.SANDBOXES_LEFT, "cause"), "left over: {{cause}}"),
            ],
            "Sandboxes per second. An expired sandbox was not renewed, because its owner was "
            "lost. A sandbox is left over if its service was killed, or if it could not be ended.",
            "ops",
            width=6,
        ),
        Panel(
            "Time to a sandbox, and of a program in it",
            [
                Query(_scope.quantile(0.95, m.SANDBOXES_START_SECONDS), "start p95"),
                Query(_scope.quantile(0.95, m.SANDBOXES_EXEC_SECONDS), "program p95"),
            ],
            "Start: from the moment a sandbox gets a place until the sandbox is ready. Program: "
            "from the start to the end of a program that Exec runs.",
            "s",
            width=6,
        ),
        Panel(
            "Processes, and output dropped",
            [
                Query(_scope.gauge(m.SANDBOXES_PROCESSES), "processes"),
                Query(_scope.rate(m.SANDBOXES_OUTPUT_DROPPED), "bytes dropped in a second"),
            ],
            "Processes that run in sandboxes, and bytes of their output per second that were "
            "dropped because of the limit.",
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
            "Worker processes, in which environments run code that may hang or crash.",
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
            "Worker processes per second that crashed, or that were killed at their time limit or "
            "together with their caller.",
            "ops",
        ),
    ],
)

ENVIRONMENTS: Final = Dashboard(
    "environments",
    "Environments",
    "Sessions, tools, verdicts, sandboxes and worker processes of the resource services, and the "
    "sandbox services.",
    [_ENVIRONMENT],
    [_SESSIONS, _TOOLS, _VERDICTS, _SANDBOXES, _SANDBOX_SERVICES, _WORKERS],
)
