"""Requests' heads: what is sent, and what never is."""

from __future__ import annotations

import pytest

from gymmesh_model.http1 import Target


def lines(head: bytes) -> list[str]:
    assert head.endswith(b"\r\n\r\n")
    return head[:-4].decode("latin-1").split("\r\n")


def test_a_whole_head() -> None:
    target = Target("http://h:81/v1/x?a=b c", {"X-A": " b "})
    assert target.origin == ("http", "h", 81)
    assert lines(target.head(7)) == [
        "POST /v1/x?a=b%20c HTTP/1.1",
        "Host: h:81",
        "Accept-Encoding: identity",
        "X-A: b",
        "Content-Length: 7",
    ]
    assert lines(target.head(0, {"Y": "z"}))[-2:] == ["Y: z", "Content-Length: 0"]


@pytest.mark.parametrize(
    ("url", "host", "port", "line"),
    [
        ("http://h", "h", 80, "Host: h"),
        ("https://H", "h", 443, "Host: h"),
        ("https://h:80/", "h", 80, "Host: h:80"),
        ("http://h:80/", "h", 80, "Host: h"),
        ("http://[::1]:8000/v1", "::1", 8000, "Host: [::1]:8000"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, "Host: xn--bcher-kva.example"),
    ],
)
def test_hosts_and_ports(url: str, host: str, port: int, line: str) -> None:
    target = Target(url)
    assert (target.host, target.port) == (host, port)
    assert target.tls == url.startswith("https")
    assert line in lines(target.head(0))


def test_a_user_in_the_url_becomes_basic_authentication() -> None:
    target = Target("http://us%40er:pa%3Ass@h/")
    assert "Authorization: Basic dXNAZXI6cGE6c3M=" in lines(target.head(0))
    assert "pa" not in lines(target.head(0))[1]
    own = Target("http://user:pass@h/", {"authorization": "Bearer t"})
    assert [line for line in lines(own.head(0)) if "uthorization" in line] == [
        "authorization: Bearer t"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "secret\r\nY: b"),
        ("X", "secret\n"),
        ("X", "secret\0"),
        ("X", "secret\x7f"),
        ("X", "secret€"),
        ("X Y", "secret"),
        ("", "secret"),
        ("X:", "secret"),
        ("Content-Length", "5"),
        ("transfer-encoding", "chunked"),
        ("Host", "secret"),
    ],
)
def test_a_header_cannot_become_two(name: str, value: str) -> None:
    target = Target("http://h/")
    for make in (lambda: Target("http://h/", {name: value}), lambda: target.head(0, {name: value})):
        with pytest.raises(ValueError, match="header") as caught:
            make()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://h/", "h/", "http://", "http:///v1", "http://a b/", "http://h\\x/", "http://h:x/"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        Target(url)


def test_a_path_cannot_end_the_line() -> None:
    first = lines(Target("http://h/a b\u00e4%20?q=\u00e4 x").head(0))[0]
    assert first == "POST /a%20b%C3%A4%20?q=%C3%A4%20x HTTP/1.1"
    assert lines(Target("http://h", method="HEAD").head(0))[0] == "HEAD / HTTP/1.1"
    with pytest.raises(ValueError, match="method"):
        Target("http://h", method="POST /")
