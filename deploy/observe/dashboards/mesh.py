"""The mesh: processes, calls between them, discovery and xDS."""

from __future__ import annotations

from typing import Final

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.observe.families import FAMILIES as m
from deploy.observe.panels import chosen, gauges, number, p95_of, rates
from deploy.observe.promql import AUTO
from gymmesh_runtime.contract import methods_of

_JOB: Final = Variable("job", m.EVENT_LOOP_LAG_SECONDS)
_scope: Final = chosen(_JOB)
# The Prometheus library's own names, which the rooms do not declare, and Prometheus' own.
# With a kind: "All" is every job of that Prometheus, and others' processes have such series, too.
_OF: Final = '{job=~"$job",kind!=""}'

# Streams last as long as their callers, and so apart from calls.
_STREAMING: Final = "|".join(
    spec.full_name
    for service in (
        "gymmesh.agent.v1.AgentService",
        "gymmesh.discovery.v1.DiscoveryService",
        "gymmesh.model.v1.ModelService",
        "gymmesh.run.v1.RunService",
    )
    for spec in methods_of(service).values()
    if spec.server_streaming
)
_UNARY: Final = f'method!~"{_STREAMING}"'
_STREAMS: Final = f'method=~"{_STREAMING}"'
# Whom a caller gave up, or a deadline of the caller's: no failure of the callee.
_FAILING: Final = 'code!~"OK|CANCELLED"'

# When certificates begin and end to be valid, in Unix time; the first to end where several differ.
_begins, _ends = (
    _scope.gauge(one, "kind", "service_name", "file", how="min")
    for one in (m.CERTIFICATE_BEGINS, m.CERTIFICATE_ENDS)
)
_CERTIFICATE: Final = "{{kind}} {{service_name}} {{file}}"

_GLANCE: Final = Row(
    "At a glance",
    [
        Panel(
            "Processes up",
            [Query(f"sum(up{_OF})", "up"), Query(f"count(up{_OF})", "of")],
            "Processes that answer Prometheus, out of all processes that Prometheus knows.",
            draw="number",
            width=4,
        ),
        number(
            "Processes down",
            f"count(up{_OF}) - sum(up{_OF})",
            "Processes that Prometheus knows, but that do not answer Prometheus.",
            alarms=1,
        ),
        number(
            "Unary calls that fail",
            _scope.share(m.RPCS, of=f"{_UNARY},{_FAILING}", among=_UNARY),
            "The share of failed unary calls. Cancelled calls don't count.",
            "percentunit",
            warns=0.01,
            alarms=0.05,
        ),
        number(
            "Unary calls, 95 % take less than",
            _scope.quantile(0.95, m.RPC_SECONDS, where=_UNARY),
            "The time from a call's arrival to its end. Streams don't count.",
            "s",
        ),
        number(
            "Event loops late by",
            _scope.gauge(m.EVENT_LOOP_LAG_SECONDS, how="max"),
            "The longest delay of an event loop, over all processes.",
            "s",
            warns=0.2,
            alarms=1,
        ),
        number(
            "Registry's view unconfirmed for",
            _scope.gauge(m.REGISTRY_VIEW_AGE, how="max"),
            "The time since an external registry, such as Consul, last confirmed a process's list "
            "of services.",
            "s",
            warns=15,
            alarms=60,
        ),
    ],
)

_PROCESSES: Final = Row(
    "Processes",
    [
        Panel(
            "Processes up, of those listed",
            [
                Query(f"sum by (kind) (up{_OF})", "{{kind}} up"),
                Query(f"count by (kind) (up{_OF})", "{{kind}} listed"),
            ],
            "Processes that answer Prometheus, and all processes that Prometheus knows.",
        ),
        Panel(
            "CPU",
            [
                Query(
                    f"sum by (kind, service_name) (rate(process_cpu_seconds_total{_OF}[{AUTO}]))",
                    "{{kind}} {{service_name}}",
                )
            ],
            "Processors in use. A service's own code uses at most one processor.",
            draw="areas",
        ),
        Panel(
            "Memory",
            [
                Query(
                    f"sum by (kind, service_name) (process_resident_memory_bytes{_OF})",
                    "{{kind}} {{service_name}}",
                )
            ],
            "Resident memory of each process.",
            "bytes",
            "areas",
        ),
        Panel(
            "Event loops late",
            gauges(_scope, m.EVENT_LOOP_LAG_SECONDS, "kind", "service_name", how="max"),
            "The delay of the event loop. Blocking code and an overloaded machine increase it.",
            "s",
            width=6,
        ),
        Panel(
            "Open files",
            [
                Query(
                    f"max by (kind, service_name) (process_open_fds{_OF})",
                    "{{kind}} {{service_name}}",
                )
            ],
            "The most open files and connections of one process.",
            width=6,
        ),
        Panel(
            "Certificates expire in",
            [Query(f"{_ends} - time()", _CERTIFICATE)],
            "Time until a certificate in use, or a trusted authority, expires. Below 0: expired. "
            "Empty if the mesh does not use TLS.",
            "s",
            width=6,
            least=None,
        ),
        Panel(
            "Share of the certificates' time that is left",
            [Query(f"({_ends} - time()) / ({_ends} - {_begins})", _CERTIFICATE)],
            "If certificates are replaced in time, the share stays above 10 %. An alert fires if "
            "less than 10 % and less than 30 days are left.",
            "percentunit",
            width=6,
            least=None,
        ),
    ],
)

_CALLS: Final = Row(
    "Calls",
    [
        Panel(
            "Unary calls served by method",
            rates(_scope, m.RPCS, "method", where=_UNARY),
            "Calls per second, on every path (direct, mux, gRPC).",
            "ops",
            "areas",
        ),
        Panel(
            "Calls that failed",
            rates(_scope, m.RPCS, "method", "code", where=_FAILING),
            "Failed calls per second, by status code. Cancelled calls have their own panel.",
            "ops",
            "areas",
        ),
        Panel(
            "Time of unary calls, 95th percentile",
            p95_of(_scope, m.RPC_SECONDS, _UNARY, "method"),
            "The time from a call's arrival to its end.",
            "s",
        ),
        Panel(
            "Streams that ended",
            rates(_scope, m.RPCS, "method", "code", where=_STREAMS),
            "Ended streams per second, by status code. A stream lasts as long as its caller wants.",
            "ops",
            "areas",
        ),
        Panel(
            "Time of streams, 95th percentile",
            p95_of(_scope, m.RPC_SECONDS, _STREAMS, "method"),
            "The time from a stream's opening to its end.",
            "s",
        ),
        Panel(
            "Calls that were cancelled",
            [Query(_scope.rate(m.RPCS, "method", where='code="CANCELLED"'), "{{method}}")],
            "Calls per second whose callers cancelled them or disconnected.",
            "ops",
            "areas",
        ),
        Panel(
            "Mux streams",
            gauges(_scope, m.MUX_STREAMS, "side"),
            "Open mux streams between processes. A mux stream carries many calls.",
        ),
        Panel(
            "Frames in a mux batch",
            [
                Query(
                    f"{_scope.rate(m.MUX_FRAMES, 'side')} / {_scope.rate(m.MUX_BATCHES, 'side')}",
                    "{{side}}",
                )
            ],
            "The mean number of frames in a batch. All frames of a batch share one message.",
        ),
        Panel(
            "Mux streams broken",
            rates(_scope, m.MUX_BROKEN, "side"),
            "Mux streams per second that broke before their end.",
            "ops",
        ),
    ],
)

_DISCOVERY: Final = Row(
    "Discovery",
    [
        Panel(
            "Instances registered",
            gauges(_scope, m.INSTANCES, "service", "health", how="max"),
            "Instances in the registry, by service and health.",
            width=6,
        ),
        Panel(
            "Leases that expired",
            [Query(_scope.increase(m.REGISTRY_EXPIRED), "expired")],
            "Instances that the registry removed because they did not renew their lease.",
            width=6,
        ),
        Panel(
            "Age of the registry's view",
            gauges(_scope, m.REGISTRY_VIEW_AGE, "kind", "service_name", how="max"),
            "The time since an external registry, such as Consul, last confirmed a process's list "
            "of services.",
            "s",
            width=6,
        ),
        Panel(
            "Registry watches",
            [Query(_scope.gauge(m.REGISTRY_WATCHES), "open")],
            "Open streams through which callers watch the registry.",
            width=6,
        ),
    ],
)

_RELAYS: Final = Row(
    "Relays",
    [
        Panel(
            "Instances at relays",
            gauges(_scope, m.RELAY_INSTANCES, "state"),
            "Instances that dialed out to a relay, by state. A disconnected instance keeps its "
            "address for a while.",
            width=6,
        ),
        Panel(
            "Calls that wait at relays",
            gauges(_scope, m.RELAY_WAITING, "service_name"),
            "Calls to instances that are disconnected at the moment.",
            width=6,
        ),
        Panel(
            "Offers accepted by relays",
            [Query(_scope.increase(m.RELAY_OFFERS, "kind"), "{{kind}}")],
            "Accepted offers per second: of new instances, and of instances that connected again.",
            width=6,
        ),
        Panel(
            "Instances that relays gave up",
            [Query(_scope.increase(m.RELAY_EXPIRED), "expired")],
            "Instances that a relay deregistered because they did not connect again in time.",
            width=6,
        ),
    ],
)

_XDS: Final = Row(
    "xDS",
    [
        Panel(
            "xDS streams",
            [Query(_scope.gauge(m.XDS_STREAMS), "open")],
            "Open streams of gRPC clients that follow the registry by xDS.",
            width=4,
        ),
        Panel(
            "xDS responses sent",
            rates(_scope, m.XDS_PUSHES, "type"),
            "xDS responses that the discovery service sent per second.",
            "ops",
            "areas",
            width=5,
        ),
        Panel(
            "Time from a change to the client",
            [Query(_scope.quantile(0.95, m.XDS_PUSH_SECONDS, "type"), "{{type}} p95")],
            "The time from a change of the registry until a client's stream accepted the change.",
            "s",
            width=5,
        ),
        Panel(
            "Version of the xDS view",
            gauges(_scope, m.XDS_VIEW_VERSION, "instance", how="max"),
            "A number that increases with every change that is sent to clients.",
            width=5,
        ),
        Panel(
            "xDS responses refused",
            rates(_scope, m.XDS_NACKS, "type"),
            "xDS responses per second that clients rejected.",
            "ops",
            width=5,
        ),
    ],
)

MESH: Final = Dashboard(
    "mesh",
    "Mesh and discovery",
    "Processes, calls between them, discovery and xDS.",
    [_JOB],
    [_GLANCE, _PROCESSES, _CALLS, _DISCOVERY, _RELAYS, _XDS],
)
