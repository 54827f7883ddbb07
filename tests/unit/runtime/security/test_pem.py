"""Certificate files: what is refused at first, and what happens when they change."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from gymmesh_runtime import metrics
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import TlsConfig
from gymmesh_runtime.security import pem as module
from gymmesh_runtime.security.pem import PemFiles
from tests.support.certificates import CLIENT, SERVER, Authority, Pair


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.0)


def config_of(authority: Authority, pair: Pair) -> TlsConfig:
    config = authority.tls(pair).tls
    assert config is not None
    return config


def refused(config: TlsConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        PemFiles(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_that_are_as_they_should_be(authority: Authority) -> None:
    pair = authority.issue("services")
    pem = PemFiles(config_of(authority, pair)).current()
    assert pem.certificate == pair.certificate.read_bytes()
    assert pem.authority == authority.path.read_bytes()


@pytest.mark.parametrize("usages", [(), (SERVER,), (CLIENT,), (SERVER, CLIENT)])
def test_an_expired_certificate(
    authority: Authority, usages: tuple[x509.ObjectIdentifier, ...]
) -> None:
    pair = authority.issue("services", days=-1, usages=usages)
    said = refused(config_of(authority, pair))
    assert "security.tls.certificate" in said
    assert f"{pair.certificate} has expired" in said


def test_a_key_of_another_certificate(authority: Authority) -> None:
    pair, other = authority.issue("services"), authority.issue("other")
    said = refused(config_of(authority, Pair(pair.certificate, other.key)))
    assert f"does not match its key {other.key}" in said


@pytest.mark.parametrize("damaged", ["certificate", "key"])
def test_half_a_file(authority: Authority, damaged: str) -> None:
    pair = authority.issue("services")
    path: Path = getattr(pair, damaged)
    path.write_bytes(path.read_bytes()[:60])
    assert "are not a PEM certificate and an unencrypted PEM key" in refused(
        config_of(authority, pair)
    )


def test_a_file_that_is_not_there(authority: Authority) -> None:
    pair = authority.issue("services")
    pair.key.unlink()
    assert f"{pair.key} cannot be read: no such file" in refused(config_of(authority, pair))


def test_an_authority_that_is_none(authority: Authority) -> None:
    pair = authority.issue("services")
    authority.path.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    assert "security.tls.authority" in refused(config_of(authority, pair))


def test_a_key_is_never_shown(authority: Authority) -> None:
    pair = authority.issue("services")
    config = config_of(authority, Pair(pair.key, pair.certificate))  # swapped by mistake
    assert "PRIVATE" not in refused(config)


@pytest.mark.parametrize("missing", ["key", "authority"])
def test_what_belongs_together(missing: str) -> None:
    files = {"certificate": "a", "key": "b", "authority": "c"} | {missing: ""}
    with pytest.raises(
        ValueError, match=r"'authority' is missing|set both 'certificate' and 'key'"
    ):
        msgspec.convert(files, TlsConfig)


def test_changed_files_are_read_anew(authority: Authority) -> None:
    files = PemFiles(config_of(authority, authority.issue("services")))
    before, version = files.current(), files.version
    assert files.current() is before
    authority.issue("services")
    assert files.current().certificate != before.certificate
    assert files.version == version + 1


def test_a_new_pair_that_does_not_fit_is_left_and_said_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue("services")
    files = PemFiles(config_of(authority, pair))
    before = files.current()
    kept = pair.key.read_bytes()
    authority.issue("services")
    new_key = pair.key.read_bytes()
    pair.key.write_bytes(kept)  # the certificate is new, and its key still to come
    assert files.current() is before
    assert not errors(caplog)  # it may come in a moment
    for _ in range(5):
        assert files.current() is before
    (said,) = errors(caplog)
    assert "does not match its key" in said
    assert "continues to use the previous files" in said
    pair.key.write_bytes(new_key)
    assert files.current().key == new_key


@pytest.mark.parametrize("days", [-1, 5])
def test_an_expired_new_one_is_not_taken(
    authority: Authority, days: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = PemFiles(config_of(authority, authority.issue("services")))
    before = files.current()
    authority.issue("services", days=days)
    files.current()
    assert (files.current() is before) == (days < 0)
    assert bool(errors(caplog)) == (days < 0)


@pytest.mark.parametrize("usages", [(), (SERVER,), (CLIENT,), (SERVER, CLIENT)])
def test_metrics_say_how_long_certificates_are_valid(
    authority: Authority, usages: tuple[x509.ObjectIdentifier, ...]
) -> None:
    pair = authority.issue("services", days=5, usages=usages)
    files = PemFiles(config_of(authority, pair))
    assert shown() == {"certificate": dates(pair.certificate), "authority": dates(authority.path)}
    authority.issue("services", days=3, usages=usages)
    files.current()
    assert shown()["certificate"] == dates(pair.certificate)
    used = shown()
    authority.issue("services", days=-1, usages=usages)  # what is not taken is not shown
    files.current()
    files.current()
    assert shown() == used


def test_of_authorities_that_follow_each_other_the_last_one_is_shown(
    authority: Authority, tmp_path: Path
) -> None:
    later = Authority(tmp_path, "later", days=90)
    both = tmp_path / "both.pem"
    both.write_bytes(later.path.read_bytes() + authority.path.read_bytes())
    PemFiles(TlsConfig(authority=str(both)))
    assert shown() == {"authority": dates(later.path)}


def shown() -> dict[str, tuple[float, float]]:
    """By file: from when to when it is valid, as a scrape has it."""
    found: dict[str, list[float]] = {}
    for family in (metrics.CERTIFICATE_BEGINS, metrics.CERTIFICATE_ENDS):
        for metric in family.collect():
            for sample in metric.samples:
                found.setdefault(sample.labels["file"], []).append(sample.value)
    return {file: (begins, ends) for file, (begins, ends) in found.items()}


def dates(path: Path) -> tuple[float, float]:
    found = x509.load_pem_x509_certificate(path.read_bytes())
    return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()


def test_files_that_vanish_and_come_back(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue("services")
    files = PemFiles(config_of(authority, pair))
    before = files.current()
    os.rename(pair.certificate, tmp_path / "away")
    for _ in range(4):
        assert files.current() is before
    assert len(errors(caplog)) == 1
    shutil.copy(tmp_path / "away", pair.certificate)
    assert files.current() is before  # the same again
    authority.issue("services")
    assert files.current() is not before


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
