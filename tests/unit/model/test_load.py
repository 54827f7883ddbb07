from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.routing import LoadReport, Targets, overloaded, parse_load

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="my {odd} model"} 3.0
vllm:num_requests_running{engine="1",model_name="my {odd} model"} 4.0
vllm:num_requests_waiting{engine="0",model_name="my {odd} model"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:request_queue_time_seconds_bucket{le="0.3",model_name="m"} 8.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 1.5
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 10.0 1700000000000
process_open_fds 12.0
"""


def test_vllm_is_read_over_all_its_engines() -> None:
    assert parse_load(VLLM) == LoadReport(
        running=7, waiting=2, kv_usage=0.75, queue_sum=1.5, queue_count=10, preemptions=1
    )


def test_other_servers_are_read() -> None:
    llama = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 5\n"
    assert parse_load(llama) == LoadReport(running=2, waiting=5)
    sglang = b'sglang:num_running_reqs{m="x"} 2\nsglang:token_usage{m="x"} 0.5\n'
    assert parse_load(sglang) == LoadReport(running=2, kv_usage=0.5)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>not found</html>",
        b"process_open_fds 12.0\n",
        b'vllm:num_requests_running{engine="0"}',
        b"vllm:num_requests_running\n",
        b"vllm:num_requests_running many\n",
        b"vllm:num_requests_running NaN\n",
        b"vllm:num_requests_running -1\n",
        b"vllm:num_requests_running +Inf\n",
        b"\xff\xfe{}} 1\n",
    ],
)
def test_what_says_nothing_is_nothing(page: bytes) -> None:
    assert parse_load(page) is None


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(page: bytes) -> None:
    parse_load(b"vllm:kv_cache_usage_perc{" + page)
    parse_load(page)


TARGETS = Targets(queue_s=1.0, kv_usage=0.9)
BEFORE = LoadReport(queue_sum=10.0, queue_count=5, preemptions=2)


@pytest.mark.parametrize(
    ("report", "before", "says"),
    [
        (LoadReport(running=500), None, False),
        (LoadReport(kv_usage=0.95), None, False),
        (LoadReport(kv_usage=0.95, waiting=1), None, True),
        (LoadReport(queue_sum=99, queue_count=1), None, False),
        (LoadReport(queue_sum=10.5, queue_count=6, preemptions=2), BEFORE, False),
        (LoadReport(queue_sum=11.5, queue_count=6, preemptions=2), BEFORE, True),
        (LoadReport(queue_sum=11.5, queue_count=7, preemptions=2), BEFORE, False),
        (LoadReport(queue_sum=10.0, queue_count=5, preemptions=3), BEFORE, True),
        (LoadReport(queue_sum=9.0, queue_count=2, preemptions=0), BEFORE, False),
    ],
)
def test_when_an_endpoint_is_overloaded(
    report: LoadReport, before: LoadReport | None, says: bool
) -> None:
    assert overloaded(report, before, TARGETS) is says
