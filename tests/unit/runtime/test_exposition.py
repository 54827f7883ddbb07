"""The metrics' endpoint: callers that are silent, slow, many, or make no sense."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from gymmesh_runtime.serving import exposition
from gymmesh_runtime.serving.exposition import MetricsEndpoint

_WITHIN_S = 60.0
GOOD = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    running = MetricsEndpoint.start("127.0.0.1", 0)
    try:
        yield running
    finally:
        running.stop()


def connected(endpoint: MetricsEndpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=_WITHIN_S)


def answer(caller: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := caller.recv(65_536):
            data += more
    return data


def asked(endpoint: MetricsEndpoint, request: bytes) -> bytes:
    with connected(endpoint) as caller:
        caller.sendall(request)
        return answer(caller)


@pytest.mark.parametrize("said", [b"", b"GET /met", GOOD[:-2]])
def test_who_does_not_go_on_is_hung_up_on(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(exposition, "_CONNECTION_S", 0.1)
        assert asked(endpoint, said) == b""
    assert b" 200 " in asked(endpoint, GOOD)


def test_the_number_of_connections_has_a_bound(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "_MOST_CONNECTIONS", 5)
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(connected(endpoint)) for _ in range(20)]
        for caller in callers[5:]:
            assert answer(caller) == b""
        assert threading.active_count() <= before + 5
        callers[0].sendall(GOOD)
        assert b" 200 " in answer(callers[0])


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400"),
        (
            b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=a\r\n\r\n",
            b"400",
        ),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"501"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"505"),
    ],
)
def test_nonsense_is_answered_and_not_logged(
    endpoint: MetricsEndpoint, request_: bytes, status: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status in asked(endpoint, request_).split(b"\r\n")[0]
    assert b" 200 " in asked(endpoint, GOOD)
    assert capfd.readouterr().err == ""
