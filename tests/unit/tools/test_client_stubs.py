from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import client_stubs
from tools.client_stubs import CLIENTS, bare, contract, stale
from tools.protos import PROTO_ROOT, ROOT

COLUMN = "  // Where it ran.\n  string host = 99;\n"


def committed(client: str) -> client_stubs.Described:
    folder, read = CLIENTS[client]
    return {file.name: bare(file) for file in read(ROOT / "clients" / client / folder)}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_column_more_makes_every_clients_stubs_stale(client: str, tmp_path: Path) -> None:
    shutil.copytree(PROTO_ROOT / "gymmesh", tmp_path / "gymmesh")
    contract_file = tmp_path / "gymmesh" / "row" / "v1" / "row.proto"
    text = contract_file.read_text(encoding="utf-8")
    first = "message Row {\n"
    contract_file.write_text(text.replace(first, first + COLUMN), encoding="utf-8")
    assert stale(contract(), committed(client)) == []
    assert stale(contract(tmp_path), committed(client)) == ["gymmesh/row/v1/row.proto"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_that_the_contract_dropped_is_named(client: str) -> None:
    now = contract()
    del now["gymmesh/verify/v1/verify.proto"]
    assert stale(now, committed(client)) == ["gymmesh/verify/v1/verify.proto"]


def test_what_is_stale_is_said_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for client, (folder, _) in CLIENTS.items():
        shutil.copytree(ROOT / "clients" / client / folder, tmp_path / client / folder)
    assert client_stubs.main(tmp_path) == 0
    (tmp_path / "go" / "gen" / "gymmesh" / "mux" / "v1" / "mux.pb.go").unlink()
    assert client_stubs.main(tmp_path) == 1
    assert capsys.readouterr().err == (
        "clients/go/gen: the stubs of gymmesh/mux/v1/mux.proto are out of date: "
        "run `make proto LANGUAGES=go`\n"
    )
    shutil.rmtree(tmp_path / "rust" / "src" / "generated")
    assert client_stubs.main(tmp_path) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        "clients/rust/src/generated: the stubs of gymmesh/access/v1/access.proto, "
    )
    assert said.endswith(" are out of date: run `make proto LANGUAGES=rust`")
