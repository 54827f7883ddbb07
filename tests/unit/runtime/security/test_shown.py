"""What flags say is laid over a configuration."""

from __future__ import annotations

import pytest

from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import SecurityConfig, TlsConfig
from gymmesh_runtime.security.caller_files import ShownFiles

CONFIGURED = SecurityConfig(
    tls=TlsConfig(authority="ca", certificate="cert", key="key"), token_file="token"
)


def test_nothing_said_changes_nothing() -> None:
    assert ShownFiles().over() is None
    assert ShownFiles().over(CONFIGURED) is CONFIGURED


def test_files_alone_make_a_configuration() -> None:
    made = ShownFiles(ca="a", cert="b", key="c", server_name="d").over()
    tls = TlsConfig(authority="a", certificate="b", key="c", server_name="d")
    assert made == SecurityConfig(tls=tls)
    assert ShownFiles(token_file="t").over() == SecurityConfig(token_file="t")


def test_what_is_said_replaces_what_is_configured() -> None:
    made = ShownFiles(cert="b", key="c", token_file="t").over(CONFIGURED)
    tls = TlsConfig(authority="ca", certificate="b", key="c")
    assert made == SecurityConfig(tls=tls, token_file="t")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (ShownFiles(cert="b", key="c"), "--ca"),
        (ShownFiles(ca="a", cert="b"), "--cert needs --key"),
    ],
)
def test_what_does_not_fit_together(files: ShownFiles, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        files.over()
