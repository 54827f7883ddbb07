"""Rollouts: how many, how long and where the time goes, what fails, what they are worth."""

from __future__ import annotations

from typing import Final

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.observe.families import FAMILIES as m
from deploy.observe.panels import chosen, gauges, number, p95, percentiles, rates, waits
from deploy.observe.rewards import mean_reward

_AGENT: Final = Variable("agent", m.ROLLOUT_SECONDS)
_ENVIRONMENT: Final = Variable("environment", m.ROLLOUT_SECONDS)
_scope: Final = chosen(_AGENT, _ENVIRONMENT)

_FAILED: Final = 'outcome="failed"'
# A cancelled attempt says nothing about the mesh.
_JUDGED: Final = 'outcome!="cancelled"'

_GLANCE: Final = Row(
    "At a glance",
    [
        number(
            "Rollouts completed / s",
            _scope.rate(m.ROLLOUTS, where='outcome="completed"'),
            "Completed attempts per second.",
        ),
        number("Attempts in flight", _scope.gauge(m.ROLLOUTS_IN_FLIGHT), "Running attempts."),
        number(
            "Attempts that failed",
            _scope.share(m.ROLLOUTS, of=_FAILED, among=_JUDGED),
            "The share of failed attempts. Cancelled attempts don't count.",
            "percentunit",
            warns=0.02,
            alarms=0.1,
        ),
        number("Mean reward", mean_reward(_scope), "The mean reward of verified rollouts."),
        number(
            "Median time",
            _scope.quantile(0.5, m.ROLLOUT_SECONDS),
            "The median time of an attempt.",
            "s",
        ),
        number(
            "Output tokens / rollout",
            _scope.mean(m.ROLLOUT_OUTPUT_TOKENS),
            "The average number of tokens that models wrote in a completed rollout.",
        ),
    ],
)

_THROUGHPUT: Final = Row(
    "Throughput",
    [
        Panel(
            "Attempts ended",
            rates(_scope, m.ROLLOUTS, "outcome"),
            "Ended attempts per second, by outcome.",
            "ops",
            "areas",
            width=6,
        ),
        Panel(
            "In flight and waiting",
            [
                Query(_scope.gauge(m.ROLLOUTS_IN_FLIGHT, "agent"), "{{agent}} in flight"),
                Query(_scope.gauge(m.COLLECT_WAITING, "agent"), "{{agent}} waiting"),
            ],
            "Running attempts, and attempts that wait in the agent for a place.",
            width=6,
        ),
        Panel(
            "Places in use",
            [
                Query(
                    f"{_scope.gauge(m.ROLLOUTS_IN_FLIGHT, 'agent')}"
                    f" / ({_scope.gauge(m.COLLECT_CAPACITY, 'agent')} > 0)",
                    "{{agent}}",
                )
            ],
            "The share of an agent's places in use. At 100 %, new attempts wait.",
            "percentunit",
            width=4,
        ),
        Panel(
            "Wait for a place in the agent",
            waits(_scope, m.COLLECT_WAIT_SECONDS, m.COLLECT_WAITING, "agent"),
            "The time that an attempt waits for a place. 0 while no attempt waits.",
            "s",
            width=4,
        ),
        Panel(
            "Collectors' streams",
            [
                *gauges(_scope, m.COLLECT_STREAMS, "agent"),
                Query(_scope.gauge(m.GATEWAY_CONNECTIONS, "agent"), "{{agent}} programs"),
                Query(_scope.rate(m.GATEWAY_REQUESTS, "outcome"), "requests / s {{outcome}}"),
            ],
            "Streams of collectors at an agent, including broken streams that the collector may "
            "still resume. For agents that run programs: connections to the gateway, and requests "
            "per second.",
            width=4,
        ),
    ],
)

_TIME: Final = Row(
    "Where the time goes",
    [
        Panel(
            "An attempt's time by stage",
            [
                Query(
                    f"{_scope.total(m.ROLLOUT_STAGE_SECONDS, 'stage')}"
                    f" / ignoring (stage) group_left {_scope.count(m.ROLLOUT_SECONDS)}",
                    "{{stage}}",
                )
            ],
            "Seconds that an average attempt spends in each stage. Concurrent calls count "
            "separately, so the sum can exceed the attempt's own time.",
            "s",
            "areas",
        ),
        Panel(
            "Stages, 95th percentile",
            [
                *p95(_scope, m.ROLLOUT_STAGE_SECONDS, "stage"),
                *p95(_scope, m.GATEWAY_OVERHEAD_SECONDS, "agent"),
            ],
            "The time that an attempt spends in each stage. Lines with an agent's name: the time "
            "that a program's request spends in the gateway, without the request's model call.",
            "s",
            exemplars=True,
        ),
        Panel(
            "Time of an attempt",
            percentiles(_scope, m.ROLLOUT_SECONDS, shares=(0.5, 0.95, 0.99)),
            "Percentiles of an attempt's time. Exemplars have the rollout's id.",
            "s",
            exemplars=True,
        ),
    ],
)

_FAILURES: Final = Row(
    "Failures",
    [
        Panel(
            "Failures by boundary",
            rates(_scope, m.ROLLOUT_FAILURES, "boundary"),
            "Failed attempts per second, by boundary (docs/reference/errors.md).",
            "ops",
            "areas",
        ),
        Panel(
            "Failures by reason",
            rates(_scope, m.ROLLOUT_FAILURES, "boundary", "reason"),
            "Failed attempts per second, by the error's reason.",
            "ops",
            "areas",
        ),
        Panel(
            "Share of attempts that fails",
            [
                Query(
                    _scope.share(m.ROLLOUTS, "environment", of=_FAILED, among=_JUDGED),
                    "{{environment}}",
                )
            ],
            "The share of failed attempts by environment. Cancelled attempts don't count.",
            "percentunit",
            most=1,
        ),
    ],
)

_WORTH: Final = Row(
    "Reward and length",
    [
        Panel(
            "Mean reward",
            [Query(mean_reward(_scope, "environment"), "{{environment}}")],
            "The mean reward of verified rollouts, by environment.",
            least=None,
        ),
        Panel(
            "How rewards are spread",
            [Query(_scope.rate(m.REWARDS, "le", suffix="_bucket"), "{{le}}")],
            "The distribution of the rewards of verified rollouts.",
            draw="buckets",
        ),
        Panel(
            "Output tokens of a rollout",
            percentiles(_scope, m.ROLLOUT_OUTPUT_TOKENS, "environment"),
            "The tokens that models wrote in a completed rollout. If the percentiles jump to one "
            "value, a limit cuts the answers.",
        ),
        Panel(
            "Model calls of a rollout",
            [Query(_scope.mean(m.ROLLOUT_MODEL_CALLS, "environment"), "{{environment}}")],
            "The average number of model calls of a completed rollout.",
        ),
        Panel(
            "Tool calls of a rollout",
            [Query(_scope.mean(m.ROLLOUT_TOOL_CALLS, "environment"), "{{environment}}")],
            "The average number of tool calls of a completed rollout.",
        ),
        Panel(
            "Versions of weights in a rollout",
            percentiles(_scope, m.ROLLOUT_WEIGHTS_LAG),
            "The number of versions between the oldest and the newest weights of a completed "
            "rollout. A larger number means that the tokens are more off-policy.",
        ),
    ],
)

ROLLOUTS: Final = Dashboard(
    "rollouts",
    "Rollouts",
    "Rollouts: number, duration, time by stage, failures and rewards.",
    [_AGENT, _ENVIRONMENT],
    [_GLANCE, _THROUGHPUT, _TIME, _FAILURES, _WORTH],
)
