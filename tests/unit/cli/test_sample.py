"""gym-cli data sample."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_cli.data.sample import choose
from gymmesh_cli.main import cli


def tasks(path: Path, names: list[str]) -> Path:
    path.write_text("".join(json.dumps({"task_id": one, "prompt": one}) + "\n" for one in names))
    return path


def sampled(path: Path, output: Path, *options: str) -> list[str]:
    command = ["data", "sample", str(path), "--output", str(output), "--overwrite", *options]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0, said.output
    return [json.loads(line)["task_id"] for line in output.read_text().splitlines()]


def test_a_subset_is_that_of_its_seed_in_the_order_of_the_file(tmp_path: Path) -> None:
    names = [f"t{at}" for at in range(50)]
    path = tasks(tmp_path / "tasks.jsonl", names)
    some = sampled(path, tmp_path / "a.jsonl", "-n", "10", "--seed", "4")
    assert len(some) == 10
    assert some == sorted(some, key=names.index)
    turned = tasks(tmp_path / "turned.jsonl", names[::-1])
    assert set(sampled(turned, tmp_path / "b.jsonl", "-n", "10", "--seed", "4")) == set(some)
    assert set(sampled(path, tmp_path / "c.jsonl", "-n", "10", "--seed", "5")) != set(some)
    assert set(some) < set(sampled(path, tmp_path / "d.jsonl", "-n", "20", "--seed", "4"))


def test_rows_are_copied_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"prompt":  "caf\xc3\xa9", "x": 1.0}\r\n\n{"prompt": "b"}')
    output = tmp_path / "new" / "a.jsonl"
    said = CliRunner().invoke(cli, ["data", "sample", str(path), "-n", "2", "-o", str(output)])
    assert said.exit_code == 0, said.output
    assert output.read_bytes() == b'{"prompt":  "caf\xc3\xa9", "x": 1.0}\n{"prompt": "b"}\n'


def test_too_many_and_wrong_rows_are_refused(tmp_path: Path) -> None:
    path = tasks(tmp_path / "tasks.jsonl", ["a", "b"])
    output = tmp_path / "out.jsonl"
    command = ["data", "sample", str(path), "-o", str(output), "-n"]
    said = CliRunner().invoke(cli, [*command, "3"])
    assert said.exit_code == 1
    assert "has fewer tasks (2) than --number 3" in said.output
    path.write_text('{"prompt": 3}\n')
    said = CliRunner().invoke(cli, [*command, "1"])
    assert said.exit_code == 1
    assert "tasks.jsonl:1: prompt" in said.output
    assert not output.exists()


@given(st.sets(st.text("abc", min_size=1, max_size=4), min_size=3, max_size=12), st.integers(0, 9))
def test_smaller_subsets_are_parts_of_larger_ones(names: set[str], seed: int) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = tasks(Path(folder) / "tasks.jsonl", sorted(names))
        subsets = [choose(path, count, seed) for count in range(1, len(names) + 1)]
    for smaller, larger in itertools.pairwise(subsets):
        assert smaller < larger
