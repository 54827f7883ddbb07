from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import generate

CONTRACT = """\
// A contract of one service.
syntax = "proto3";

package gymmesh.lamp.v1;

import "google/api/field_behavior.proto";
import "google/rpc/status.proto";

// Switches lamps.
service LampService {
  // Switches one lamp.
  rpc SwitchLamp(SwitchLampRequest) returns (SwitchLampResponse);
}

// Which lamp.
message SwitchLampRequest {
  // Its name.
  string name = 1 [(google.api.field_behavior) = REQUIRED];
}

// What happened.
message SwitchLampResponse {
  // The lamp's own error.
  google.rpc.Status status = 1;
}
"""

DATA_ONLY = """\
// Messages only.
syntax = "proto3";

package gymmesh.lamp.v1;

// A colour.
message Colour {
  // Its name.
  string name = 1;
}
"""


@pytest.fixture
def proto_root(tmp_path: Path) -> Path:
    """A scratch contract of a service and a file without one, its stubs not yet made."""
    folder = tmp_path / "proto" / "gymmesh" / "lamp" / "v1"
    folder.mkdir(parents=True)
    (folder / "lamp.proto").write_text(CONTRACT, encoding="utf-8")
    (folder / "colour.proto").write_text(DATA_ONLY, encoding="utf-8")
    return tmp_path / "proto"


def run(proto_root: Path, *arguments: str) -> int:
    return generate.main(["--proto-root", str(proto_root), *arguments])


def test_stubs_are_typed_importable_and_complete(proto_root: Path) -> None:
    assert run(proto_root) == 0
    package = proto_root / "python" / "gymmesh"
    names = {path.name for path in (package / "lamp" / "v1").iterdir()}
    stubs = {f"lamp_pb2{suffix}" for suffix in (".py", ".pyi", "_grpc.py", "_grpc.pyi")}
    assert names == stubs | {"colour_pb2.py", "colour_pb2.pyi", "__init__.py"}
    assert (package / "py.typed").exists()
    typed = (package / "lamp" / "v1" / "lamp_pb2_grpc.pyi").read_text(encoding="utf-8")
    assert "class LampServiceAsyncStub" in typed
    code = "from gymmesh.lamp.v1 import lamp_pb2_grpc as g; print(g.LampServiceStub.__name__)"
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=proto_root / "python",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert out.stdout == "LampServiceStub\n"


def test_check_passes_on_fresh_stubs_and_shows_a_diff_on_stale_ones(
    proto_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(proto_root, "--check") == 1
    assert run(proto_root) == 0
    assert run(proto_root, "--check") == 0
    contract = proto_root / "gymmesh" / "lamp" / "v1" / "lamp.proto"
    contract.write_text(CONTRACT.replace("string name", "bytes name"), encoding="utf-8")
    capsys.readouterr()
    assert run(proto_root, "--check") == 1
    shown = capsys.readouterr()
    assert "-    name: _builtins.str" in shown.out
    assert "+    name: _builtins.bytes" in shown.out
    assert "make proto" in shown.err


def test_what_the_contract_dropped_is_reported_and_then_removed(proto_root: Path) -> None:
    assert run(proto_root) == 0
    (proto_root / "gymmesh" / "lamp" / "v1" / "colour.proto").unlink()
    assert run(proto_root, "--check") == 1
    assert run(proto_root) == 0
    assert not list((proto_root / "python").rglob("colour*"))


def test_an_empty_stale_file_is_seen_as_well(proto_root: Path) -> None:
    assert run(proto_root) == 0
    (proto_root / "python" / "gymmesh" / "lamp" / "stray.py").write_text("", encoding="utf-8")
    assert run(proto_root, "--check") == 1


def test_a_broken_contract_is_refused_and_the_stubs_stay(
    proto_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(proto_root) == 0
    before = generate.tree(proto_root / "python")
    (proto_root / "gymmesh" / "lamp" / "v1" / "lamp.proto").write_text("syntax", encoding="utf-8")
    assert run(proto_root) == 1
    assert "lamp.proto" in capfd.readouterr().err
    assert generate.tree(proto_root / "python") == before


def test_the_names_that_people_import_are_written_by_hand_and_stay(proto_root: Path) -> None:
    assert run(proto_root) == 0
    by_hand = proto_root / "python" / "gymmesh" / "__init__.py"
    by_hand.write_text('"""By hand."""\n', encoding="utf-8")
    assert run(proto_root, "--check") == 0
    (proto_root / "gymmesh" / "lamp" / "v1" / "colour.proto").unlink()
    assert run(proto_root) == 0
    assert by_hand.read_text(encoding="utf-8") == '"""By hand."""\n'
    by_hand.unlink()
    assert run(proto_root, "--check") == 1
