"""One run: what its collector has on disk, in flight and still before it."""

from __future__ import annotations

from typing import Final

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.observe.families import FAMILIES as m
from deploy.observe.panels import chosen, number, percentiles, rates

# Only collectors have series of it; of metrics without labels every process has one.
_INSTANCE: Final = Variable("instance", m.COLLECTOR_ROLLOUTS)
_scope: Final = chosen(_INSTANCE)

_REQUESTED: Final = _scope.gauge(m.COLLECTOR_ROLLOUTS_REQUESTED)
_KEPT: Final = _scope.gauge(m.COLLECTOR_ROLLOUTS_KEPT)
_ENDED: Final = f"sum({_scope.select(m.COLLECTOR_ROLLOUTS)})"
_OUTPUT: Final = 'direction="output"'
_FAILED: Final = _scope.gauge(m.COLLECTOR_ROLLOUTS, where='outcome="failed"')

_GLANCE: Final = Row(
    "At a glance",
    [
        number("Rollouts requested", _REQUESTED, "The rollouts of the whole run."),
        number(
            "Rollouts on disk",
            f"{_KEPT} + {_ENDED}",
            "Rollouts with an outcome on disk, including those of earlier sessions.",
        ),
        number(
            "Share of the run done",
            f"({_KEPT} + {_ENDED}) / {_REQUESTED}",
            "The share of the run's rollouts that are on disk.",
            "percentunit",
        ),
        number(
            "Time left",
            f"({_REQUESTED} - {_KEPT} - {_ENDED}) / {_scope.rate(m.COLLECTOR_ROLLOUTS)}",
            "Time until the run ends, at the current rate.",
            "s",
        ),
        number(
            "Share that failed",
            f"({_FAILED} or vector(0)) / {_ENDED}",
            "The share of this session's rollouts whose last attempt failed.",
            "percentunit",
        ),
        number(
            "Output tokens / s",
            _scope.rate(m.COLLECTOR_TOKENS, where=_OUTPUT),
            "Output tokens per second of rollouts that were written to disk.",
        ),
    ],
)

_PROGRESS: Final = Row(
    "Progress",
    [
        Panel(
            "Rollouts put on disk / s",
            rates(_scope, m.COLLECTOR_ROLLOUTS, "outcome", "boundary"),
            "Rollouts written to disk per second, by outcome and the failure's boundary.",
            "ops",
            "areas",
        ),
        Panel(
            "Attempts in flight, rollouts waiting",
            [
                Query(_scope.gauge(m.COLLECTOR_IN_FLIGHT), "in flight"),
                Query(_scope.gauge(m.COLLECTOR_CONCURRENCY), "at most"),
                Query(_scope.gauge(m.COLLECTOR_ENDING), "ending"),
                Query(_scope.gauge(m.COLLECTOR_RETRIES_WAITING), "waiting for another attempt"),
            ],
            "Attempts sent to agents, and rollouts that wait for the disk, a judge or a retry.",
        ),
        Panel(
            "Attempts retried",
            rates(_scope, m.COLLECTOR_RETRIES, "boundary", "reason"),
            "Failed attempts per second that are retried.",
            "ops",
            "areas",
        ),
    ],
)

_OUTPUTS: Final = Row(
    "Disk and trainer",
    [
        Panel(
            "Time of a commit to disk",
            percentiles(_scope, m.JOURNAL_COMMIT_SECONDS),
            "Time to write a group of outcomes to disk, fsync included.",
            "s",
            width=6,
        ),
        Panel(
            "Tokens of rollouts / s",
            rates(_scope, m.COLLECTOR_TOKENS, "direction"),
            "Tokens per second of completed rollouts written to disk.",
            "ops",
            width=6,
        ),
        Panel(
            "Groups for trainers",
            [
                Query(_scope.rate(m.GROUPS, "event"), "{{event}} / s"),
                Query(_scope.gauge(m.GROUPS_WAITING), "waiting for the trainer"),
            ],
            "Groups (all repeats of a task) for a trainer: finished, acknowledged, or skipped "
            "because their weights are too old.",
            width=6,
        ),
        Panel(
            "Connections lost, events dropped",
            [
                Query(_scope.increase(m.COLLECT_RECONNECTS), "connections lost"),
                Query(_scope.increase(m.STALE_EVENTS), "events of older attempts"),
            ],
            "If a connection is lost or an event is dropped, no rollout is lost. Attempts "
            "continue, or start again.",
            width=6,
        ),
    ],
)

RUN: Final = Dashboard(
    "run",
    "One run",
    "Rollouts of a collector that are on disk, in flight and not started. The collector serves "
    "its metrics at the port of `gym-cli collect --metrics-port`.",
    [_INSTANCE],
    [_GLANCE, _PROGRESS, _OUTPUTS],
)
