"""`gym-cli certs dev`: what it writes, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from gymmesh_cli.main import cli
from gymmesh_runtime.security import SecurityConfig, TlsConfig
from gymmesh_runtime.security.credentials import Credentials


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["certs", "dev", *map(str, arguments)])


def names_of(path: Path) -> set[str]:
    found = x509.load_pem_x509_certificate(path.read_bytes())
    extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(one.value) for one in extension}


def test_what_it_writes_can_be_served_with(tmp_path: Path) -> None:
    out = tmp_path / "certs"
    done = run("--out", out, "--host", "box.example", "--host", "10.0.0.7", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["for_development"] is True
    assert {Path(one).name for one in said["files"]} == {
        "ca.pem", "services.pem", "services.key", "collector.pem", "collector.key",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert names_of(out / "services.pem") == {
        "services", "localhost", "127.0.0.1", "::1", "box.example", "10.0.0.7",
    }  # fmt: skip
    tls = TlsConfig(
        authority=str(out / "ca.pem"),
        certificate=str(out / "services.pem"),
        key=str(out / "services.key"),
    )
    assert Credentials(SecurityConfig(tls=tls)).server() is not None


def test_it_issues_again_with_the_same_authority(tmp_path: Path) -> None:
    assert run("--out", tmp_path, "trainer").exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run("--out", tmp_path, "trainer")
    assert "FOR DEVELOPMENT ONLY, valid until 2" in done.stdout
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(after) == {"ca.pem", "ca.key", "trainer.pem", "trainer.key"}
    assert {name for name in after if after[name] == before[name]} == {"ca.pem", "ca.key"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ca"], "is not a valid name of a certificate"),
        (["../x"], "is not a valid name of a certificate"),
        (["--host", "ünlaut"], "is not a host name"),
    ],
)
def test_what_it_refuses(tmp_path: Path, arguments: list[str], problem: str) -> None:
    done = run("--out", tmp_path, *arguments)
    assert done.exit_code == 1
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_authority_of_someone_elses(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not ours")
    done = run("--out", tmp_path)
    assert done.exit_code == 1
    assert "that this command did not create" in done.stderr
    assert (tmp_path / "ca.pem").read_text() == "not ours"


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = run("--out", tmp_path)
    assert done.exit_code == 1
    assert done.stderr == (
        "gym-cli: gym-cli certs needs cryptography: pip install 'gymmesh[certs]'\n"
    )
