"""Which hosts, ports and addresses may be reached; how a request's target is read."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError, Reason
from gymmesh_sandbox.backends.proxy.hosts import check_listed, host_pattern, public
from gymmesh_sandbox.backends.proxy.targets import ProxyTarget, RefusedError, host_form, target_of
from gymmesh_sandbox.requests import Offer, plan_of

_HOSTS = (
    sandbox_pb2.AllowedHost(name="example.org"),
    sandbox_pb2.AllowedHost(name="*.Example.net."),
    sandbox_pb2.AllowedHost(name="inner.test", ports=[8080], private=True),
    sandbox_pb2.AllowedHost(name="127.0.0.1", ports=[5000], private=True),
    sandbox_pb2.AllowedHost(name="[::1]", private=True),
)


@pytest.mark.parametrize(
    ("host", "port", "private"),
    [
        ("example.org", 80, False),
        ("example.org", 443, False),
        ("a.example.net", 443, False),
        ("b.a.example.net", 80, False),
        ("inner.test", 8080, True),
        ("127.0.0.1", 5000, True),
        ("::1", 80, True),
    ],
)
def test_listed(host: str, port: int, private: bool) -> None:
    assert check_listed(ProxyTarget(host, port), _HOSTS) is private


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("example.org", 8080),
        ("example.org", 22),
        ("a.example.org", 443),
        ("notexample.org", 443),
        ("example.org.evil.test", 443),
        ("example.net", 443),
        ("notexample.net", 443),
        (".example.net", 443),
        ("inner.test", 80),
        ("127.0.0.1", 80),
        ("127.1", 5000),
        ("2130706433", 5000),
        ("", 80),
    ],
)
def test_not_listed(host: str, port: int) -> None:
    with pytest.raises(RefusedError) as caught:
        check_listed(ProxyTarget(host, port), _HOSTS)
    assert caught.value.status == 403
    assert "\n" not in caught.value.line


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("Example.ORG.", "example.org"),
        ("*.Example.org", "*.example.org"),
        ("::1", "::1"),
        ("[0:0::1]", "::1"),
        ("*", ""),
        ("*.", ""),
        ("*.*.org", ""),
        ("a.*.org", ""),
        ("*.127.0.0.1", ""),
        ("a..b", ""),
        ("a b", ""),
        ("http://a", ""),
        ("a:80", ""),
        ("b\u00fccher.example", ""),
        ("fe80::1%eth0", ""),
        ("a" * 64, ""),
        (".".join(["a" * 60] * 5), ""),
    ],
)
def test_names_have_one_form(name: str, form: str) -> None:
    assert host_pattern(name) == form


@pytest.mark.parametrize(
    ("field", "hosts"),
    [
        ("network.hosts.hosts", []),
        ("network.hosts.name", [sandbox_pb2.AllowedHost(name="*")]),
        ("network.hosts.name", [sandbox_pb2.AllowedHost(name="http://a.test")]),
        ("network.hosts.ports", [sandbox_pb2.AllowedHost(name="a.test", ports=[0])]),
    ],
)
def test_lists_that_a_request_cannot_have(field: str, hosts: list[sandbox_pb2.AllowedHost]) -> None:
    can = sandbox_pb2.Capabilities(networks=[sandbox_pb2.NETWORK_KIND_HOSTS])
    offer = Offer("bubblewrap", "host", can, sandbox_pb2.ServiceLimits())
    network = sandbox_pb2.Network(hosts=sandbox_pb2.AllowedHosts(hosts=hosts))
    request = sandbox_pb2.CreateSandboxRequest(request_id="r", network=network)
    if not hosts:
        request.network.hosts.SetInParent()
    with pytest.raises(MeshError) as caught:
        plan_of(request, "sb-1", "boxes-0", offer)
    assert caught.value.reason in (
        Reason.ERROR_REASON_FIELD_INVALID,
        Reason.ERROR_REASON_REQUIRED_FIELD_MISSING,
    )
    assert caught.value.metadata["field"] == field


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111"])
def test_addresses_of_the_internet(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "ff0e::1"),
        *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "2002:7f00:1::", "2001::1"),
        *("64:ff9b::7f00:1", "64:ff9b:1::1", "", "localhost"),
    ],
)
def test_addresses_that_are_not(address: str) -> None:
    assert not public(address)


@given(st.ip_addresses(v=4))
def test_an_address_that_stands_for_another_is_not_public(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for base in (0xFFFF << 32, 0x64FF9B << 96, 0x2002 << 112 | number << 80):
        assert not public(str(ipaddress.IPv6Address(base | number)))


@given(st.ip_addresses())
def test_public_is_global(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if public(str(address)):
        assert address.is_global
        assert not address.is_private
        assert not address.is_multicast


_CONNECT, _GET = b"CONNECT", b"GET"


@pytest.mark.parametrize(
    ("method", "target", "host", "found"),
    [
        (_CONNECT, b"Example.org.:443", b"whatever:1", ProxyTarget("example.org", 443)),
        (_CONNECT, b"[0:0::1]:8443", b"x", ProxyTarget("::1", 8443)),
        (_GET, b"http://example.org", b"example.org", ProxyTarget("example.org", 80, "/")),
        (
            _GET,
            b"HTTP://EXAMPLE.org:80/A?b#c",
            b"example.ORG.",
            ProxyTarget("example.org", 80, "/A?b"),
        ),
        (_GET, b"http://a.test:81?q=1", b"a.test:81", ProxyTarget("a.test", 81, "/?q=1")),
        (_GET, b"http://[::1]:81/@:x", b"[::1]:81", ProxyTarget("::1", 81, "/@:x")),
    ],
)
def test_targets(method: bytes, target: bytes, host: bytes, found: ProxyTarget) -> None:
    assert target_of(method, target, [(b"host", host)]) == found


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        (_CONNECT, b"example.org", []),
        (_CONNECT, b"example.org:", []),
        (_CONNECT, b"example.org:0", []),
        (_CONNECT, b"example.org:65536", []),
        (_CONNECT, b"example.org:443@evil.test:443", []),
        (_CONNECT, b"user@example.org:443", []),
        (_CONNECT, b"example.org:443/", []),
        (_CONNECT, b"http://example.org:443", []),
        (_CONNECT, b"::1:443", []),
        (_CONNECT, b"[fe80::1%25eth0]:443", []),
        (_CONNECT, b"example.org%00.evil.test:443", []),
        (_CONNECT, b"example.org:\xd9\xa4\xd9\xa4", []),
        (_GET, b"/", [(b"host", b"example.org")]),
        (_GET, b"*", [(b"host", b"example.org")]),
        (_GET, b"https://example.org/", []),
        (_GET, b"ftp://example.org/", []),
        (_GET, b"http://user:word@example.org/", []),
        (_GET, b"http://example.org@evil.test/", []),
        (_GET, b"http://example.org:80@evil.test/", []),
        (_GET, b"http://evil.test\\@example.org/", []),
        (_GET, b"http:///x", []),
        (_GET, b"http://example.org/", [(b"host", b"evil.test")]),
        (_GET, b"http://example.org/", [(b"host", b"example.org:81")]),
        (_GET, b"http://example.org/", [(b"host", b"example.org"), (b"host", b"example.org")]),
        (_GET, b"http://a.test/", [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")]),
    ],
)
def test_requests_that_cannot_be_read_in_one_way(
    method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    with pytest.raises(RefusedError) as caught:
        target_of(method, target, headers)
    assert caught.value.status == 400
    assert "\n" not in caught.value.line


@given(st.text(st.characters(max_codepoint=255), max_size=40), st.integers(-1, 70_000))
def test_what_is_connected_to_is_what_was_read(host: str, port: int) -> None:
    """No text leads to a host in two forms, or to a port that is none."""
    try:
        found = target_of(_CONNECT, f"{host}:{port}".encode(), [])
    except RefusedError:
        return
    assert found.host == host_form(found.host) == host_form(host)
    assert found.port == port
    assert 1 <= port <= 65_535


@given(st.lists(st.sampled_from("aZ0-_*.@:/[]%\\ \n\0\u00e9"), max_size=12).map("".join))
def test_a_form_is_stable_and_plain(text: str) -> None:
    form = host_form(text)
    assert host_form(form) == form
    assert form == form.lower()
    assert form.isascii()
    assert not set(form) & set("*@/[]%\\ \n\0")
