"""How busy an endpoint says it is, read from its Prometheus metrics: pure.

This module knows the metric names of vLLM's, llama.cpp's and SGLang's servers. Each server exposes
text in Prometheus' exposition format, version 0.0.4, at `/metrics`, next to `/v1`. A missing metric
counts as zero. Other names are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# A line's name and value. A label's value may hold anything, so the last brace ends the labels.
_LINE: Final = re.compile(rb"^[ \t]*([\w:]+)(?:[ \t]*\{.*\}[ \t]*|[ \t]+)(\S+)", re.MULTILINE)
# By name: what the sample is, and how the samples of several engines combine.
_SAMPLES: Final[dict[bytes, str]] = {
    b"vllm:num_requests_running": "running",
    b"vllm:num_requests_waiting": "waiting",
    b"vllm:kv_cache_usage_perc": "kv_usage",
    # What it was called before the name above.
    b"vllm:gpu_cache_usage_perc": "kv_usage",
    b"vllm:request_queue_time_seconds_sum": "queue_sum",
    b"vllm:request_queue_time_seconds_count": "queue_count",
    b"vllm:num_preemptions_total": "preemptions",
    b"llamacpp:requests_processing": "running",
    b"llamacpp:requests_deferred": "waiting",
    b"llamacpp:kv_cache_usage_ratio": "kv_usage",
    b"sglang:num_running_reqs": "running",
    b"sglang:num_queue_reqs": "waiting",
    b"sglang:token_usage": "kv_usage",
}


@dataclass(slots=True)
class LoadReport:
    """An endpoint's metrics at one time, over all its engines.

    running, waiting: requests. kv_usage: the used part, 0 to 1, of the fullest engine's KV cache.
    queue_sum, queue_count: seconds that requests waited for the engine, and how many did, since it
    started. preemptions: requests preempted for lack of KV cache, since it started.
    """

    running: float = 0.0
    waiting: float = 0.0
    kv_usage: float = 0.0
    queue_sum: float = 0.0
    queue_count: float = 0.0
    preemptions: float = 0.0

    @property
    def busy(self) -> float:
        return self.running + self.waiting


@dataclass(frozen=True, slots=True)
class Targets:
    """Where an endpoint counts as overloaded.

    queue_s: seconds that requests wait for the engine, on the average of the time between two
    reports. kv_usage: the used part of its KV cache, while requests wait.
    """

    queue_s: float = 1.0
    kv_usage: float = 0.95


def parse_load(text: bytes) -> LoadReport | None:
    """The report in a page of metrics; None when it holds nothing that is known."""
    report, found = LoadReport(), False
    for name, written in _LINE.findall(text):
        field = _SAMPLES.get(name)
        try:
            value = float(written)
        except ValueError:
            continue
        if field is None or not 0.0 <= value < float("inf"):
            continue
        found = True
        if field == "kv_usage":
            report.kv_usage = max(report.kv_usage, value)
        else:
            setattr(report, field, getattr(report, field) + value)
    return report if found else None


def overloaded(report: LoadReport, before: LoadReport | None, targets: Targets) -> bool:
    """Whether the endpoint has more than it can do. before: its last report, if there was one."""
    if report.waiting and report.kv_usage >= targets.kv_usage:
        return True
    if before is None:
        return False
    if report.preemptions > before.preemptions:
        return True
    waited = report.queue_count - before.queue_count
    # A count that fell is that of a server that was started anew.
    return waited > 0 and (report.queue_sum - before.queue_sum) / waited > targets.queue_s
