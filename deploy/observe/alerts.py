"""Alerts. Each has a section of its name in docs/how-to/alerts.md: what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from deploy.observe.families import FAMILIES as m
from deploy.observe.promql import Scope
from deploy.observe.rules import AS_SAID, FAILED_SHARE, QUEUE_P95, Times
from gymmesh_mesh.processes.prometheus import JOB

RUNBOOK: Final = "docs/how-to/alerts.md"
#: critical: rollouts are not made, or must not be trained on. warning: it costs, or soon will.
Severity = Literal["critical", "warning"]

_OF: Final = f'{{job="{JOB}"}}'
_SERVING_AGENTS: Final = 'service="gymmesh.agent.v1.AgentService",health="serving"'
_WHERE: Final = "{{ $labels.kind }} {{ $labels.service_name }} at {{ $labels.instance }}"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires while `value` meets `condition`, and `guard` holds, for `minutes`.

    `value` alone has data in a sound mesh, too, and so can be tried and drawn.
    """

    name: str
    value: str
    condition: str
    minutes: float
    severity: Severity
    summary: str
    guard: str = ""

    @property
    def anchor(self) -> str:
        """Of its section in docs/how-to/alerts.md."""
        return self.name.lower()

    def rule(self, times: Times) -> dict[str, Any]:
        """As Prometheus reads it."""
        guard = f" {self.guard}" if self.guard else ""
        waits = {"for": times.minutes(self.minutes)} if self.minutes else {}
        return {
            "alert": self.name,
            "expr": f"{self.value} {self.condition}{guard}",
            **waits,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook_url": f"{RUNBOOK}#{self.anchor}"},
        }


def alerts(times: Times = AS_SAID) -> list[Alert]:
    """All of them."""
    scope = Scope(times.minutes(5))
    return [*_processes(scope, times), *_rollouts(scope), *_models(scope), *_others(scope, times)]


def _processes(scope: Scope, times: Times) -> list[Alert]:
    agents = scope.gauge(m.INSTANCES, "instance", where=_SERVING_AGENTS)
    begins, ends = (
        scope.gauge(one, "instance", "kind", "service_name", "file", how="min")
        for one in (m.CERTIFICATE_BEGINS, m.CERTIFICATE_ENDS)
    )
    return [
        Alert(
            "GymmeshTargetDown",
            f"up{_OF}",
            "== 0",
            1,
            "critical",
            f"{_WHERE} does not answer Prometheus.",
        ),
        Alert(
            "GymmeshInstanceLost",
            scope.increase(m.REGISTRY_EXPIRED, "instance"),
            "> 0",
            0,
            "warning",
            "{{ $value | humanize }} instances did not renew their lease: they were killed, hung "
            "or cut off from the registry.",
        ),
        Alert(
            "GymmeshNoAgent",
            f"({agents} or 0 * {scope.gauge(m.INSTANCES, 'instance')})",
            "== 0",
            1,
            "critical",
            "The registry at {{ $labels.instance }} lists no agent that accepts rollouts.",
        ),
        Alert(
            "GymmeshEventLoopLate",
            scope.gauge(
                m.EVENT_LOOP_LAG_SECONDS, "instance", "kind", "service_name", how="max"
            ),
            "> 1",
            2,
            "warning",
            f"{_WHERE}: the event loop is {{{{ $value | humanizeDuration }}}} late.",
        ),
        Alert(
            "GymmeshTooManySeries",
            f"scrape_samples_post_metric_relabeling{_OF}",
            "> 20000",
            10,
            "warning",
            f"{_WHERE} has {{{{ $value | humanize }}}} series: a label has too many values.",
        ),
        Alert(
            "GymmeshCertificateExpires",
            f"({ends} - time()) / ({ends} - {begins})",
            "< 0.1",
            0,
            "warning",
            f"{_WHERE}: the {{{{ $labels.file }}}} in use expires soon. {{{{ $value |"
            " humanizePercentage }} of its validity is left.",
            guard=f"and {ends} - time() < {times.seconds(30 * 24 * 3600):g}",
        ),
    ]  # fmt: skip


def _rollouts(scope: Scope) -> list[Alert]:
    failed = scope.increase(m.ROLLOUTS, "agent", "environment", where='outcome="failed"')
    return [
        Alert(
            "GymmeshRolloutsFail",
            FAILED_SHARE,
            "> 0.2",
            2,
            "critical",
            "{{ $value | humanizePercentage }} of the attempts of agent {{ $labels.agent }} in"
            " environment {{ $labels.environment }} fail.",
            guard=f"and on (agent, environment) {failed} >= 10",
        ),
        Alert(
            "GymmeshQueueStuck",
            scope.gauge(m.COLLECT_WAITING, "agent"),
            "> 0",
            5,
            "critical",
            "{{ $value | humanize }} attempts wait in agent {{ $labels.agent }}, and no attempt "
            "ends.",
            guard=f"unless on (agent) {scope.rate(m.ROLLOUTS, 'agent')} > 0",
        ),
        Alert(
            "GymmeshVerifierFaults",
            scope.share(m.VERIFICATIONS, "environment", of='status="fault"'),
            "> 0.05",
            5,
            "critical",
            "{{ $value | humanizePercentage }} of the verdicts of environment {{ "
            "$labels.environment }} fail.",
        ),
    ]


def _models(scope: Scope) -> list[Alert]:
    newest = scope.gauge(m.MODEL_WEIGHTS_VERSION, "model", how="max")
    oldest = scope.gauge(m.MODEL_WEIGHTS_VERSION, "model", how="min")
    return [
        Alert(
            "GymmeshEndpointLeftAlone",
            scope.gauge(m.MODEL_ENDPOINT_DOWN, "model", "endpoint", how="max"),
            "> 0",
            1,
            "warning",
            "Endpoint {{ $labels.endpoint }} of model {{ $labels.model }} failed too often in a "
            "row. The model service sends it no calls except probes.",
        ),
        Alert(
            "GymmeshModelQueueLong",
            QUEUE_P95,
            "> 60",
            10,
            "warning",
            "5 % of the calls of model {{ $labels.model }} wait more than "
            "{{ $value | humanizeDuration }} for a place in the model service.",
        ),
        Alert(
            "GymmeshTokensDiverge",
            scope.increase(m.TOKEN_DIVERGENCES, "model"),
            "> 0",
            0,
            "critical",
            "{{ $value | humanize }} calls of model {{ $labels.model }} broke the exact-token law.",
        ),
        Alert(
            "GymmeshWeightsDiffer",
            f"{newest} - {oldest}",
            "> 0",
            10,
            "warning",
            "Services of model {{ $labels.model }} have different weights: their versions "
            "differ by {{ $value | humanize }}.",
        ),
    ]


def _others(scope: Scope, times: Times) -> list[Alert]:
    age = scope.gauge(m.REGISTRY_VIEW_AGE, "instance", "kind", "service_name", how="max")
    return [
        Alert(
            "GymmeshViewStale",
            age,
            f"> {times.seconds(60):g}",
            1,
            "critical",
            f"{_WHERE} uses a list of services that its registry last confirmed"
            " {{ $value | humanizeDuration }} ago.",
        ),
        Alert(
            "GymmeshXdsRefused",
            scope.increase(m.XDS_NACKS, "type"),
            "> 0",
            0,
            "warning",
            "xDS clients reject {{ $labels.type }} resources and keep their previous "
            "configuration.",
        ),
        Alert(
            "GymmeshSandboxFails",
            scope.increase(m.SANDBOX_ENDINGS, where='ending="failed"'),
            "> 0",
            1,
            "warning",
            "{{ $value | humanize }} programs could not start in a sandbox.",
        ),
        Alert(
            "GymmeshSandboxPlacesTaken",
            scope.gauge(m.SANDBOXES_WAITING, "service"),
            "> 0",
            10,
            "warning",
            "{{ $value | humanize }} calls wait for a place in sandbox service {{ $labels.service "
            "}}.",
        ),
        Alert(
            "GymmeshSandboxesLost",
            scope.increase(m.SANDBOXES_ENDED, "service", where='cause="lost"'),
            "> 0",
            0,
            "warning",
            "{{ $value | humanize }} sandboxes of sandbox service {{ $labels.service }} were lost "
            "while they ran.",
        ),
        Alert(
            "GymmeshSandboxesLeft",
            scope.increase(m.SANDBOXES_LEFT, "service", where='cause="stuck"'),
            "> 0",
            0,
            "warning",
            "Sandbox service {{ $labels.service }} could not end {{ $value | humanize }} "
            "sandboxes.",
        ),
        Alert(
            "GymmeshDiskSlow",
            scope.quantile(0.95, m.JOURNAL_COMMIT_SECONDS, "instance"),
            f"> {times.seconds(5):g}",
            5,
            "warning",
            "5 % of the writes of the collector at {{ $labels.instance }} to disk take more than "
            "{{ $value | humanizeDuration }}.",
        ),
    ]
