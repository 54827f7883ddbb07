"""Token files, and where a token is never sent."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security import tokens as module
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.tokens import TokenFile, bearer, presented


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_S", 0.0)


@pytest.mark.parametrize("text", ["", "\n", "two words", "ünlaut", "a\nb"])
def test_files_without_a_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ConfigError, match="contains no token") as caught:
        TokenFile(str(path))
    assert "words" not in str(caught.value)


def test_a_token_that_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    path.write_text("first-token\n")
    file = TokenFile(str(path))
    assert str(file.current()) == "first-token"
    assert "first" not in repr(file.current())
    path.write_text("not one")
    for _ in range(4):
        assert str(file.current()) == "first-token"
    path.unlink()
    for _ in range(4):
        assert str(file.current()) == "first-token"
    first, second = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert "contains no token" in first
    assert "cannot be read" in second
    path.write_text("second-token")
    assert str(file.current()) == "second-token"


@pytest.mark.parametrize(
    ("authorization", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("abc", ""), ("", "")],
)
def test_what_is_presented(authorization: str, token: str) -> None:
    assert presented(authorization) == token
    assert presented(bearer("xyz")) == "xyz"


@pytest.mark.parametrize(
    ("address", "insecure", "sent"),
    [
        ("127.0.0.1:9401", False, True),
        ("[::1]:9401", False, True),
        ("10.0.0.7:9401", False, False),
        ("agents.example:9401", False, False),
        ("xds:///agent.tool_loop", False, False),
        ("10.0.0.7:9401", True, True),
    ],
)
def test_no_token_leaves_the_machine_unencrypted(
    tmp_path: Path, address: str, insecure: bool, sent: bool
) -> None:
    path = tmp_path / "token"
    path.write_text("a-token")
    credentials = Credentials(SecurityConfig(token_file=str(path), insecure=insecure))
    if sent:
        assert credentials.metadata(address) == (("authorization", "Bearer a-token"),)
        return
    with pytest.raises(MeshError) as caught:
        credentials.metadata(address)
    assert caught.value.reason == errors_pb2.ERROR_REASON_CREDENTIAL_INVALID
    assert "a-token" not in caught.value.message
