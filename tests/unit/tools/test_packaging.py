from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).resolve().parents[3]
EXTRA_LIBRARIES = {
    "consul",
    "duckdb",
    "langdetect",
    "math_verify",
    "mcp",
    "mlflow",
    "mpmath",
    "nltk",
    "openai",
    "reasoning_gym",
    "simpleeval",
    "sympy",
    "trackio",
    "vllm",
    "wandb",
    "xllamacpp",
    "xmltodict",
}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def packages(rooms: list[str]) -> set[str]:
    return {
        init.parent.name for room in rooms for init in (REPOSITORY / room).glob("*/__init__.py")
    }


def test_wheel_and_editable_install_take_the_same_rooms(project: dict[str, Any]) -> None:
    build = project["tool"]["hatch"]["build"]
    rooms = build["sources"]
    assert build["dev-mode-dirs"] == rooms
    assert build["targets"]["wheel"]["only-include"] == rooms
    on_disk = {
        path.parent.parent.relative_to(REPOSITORY).as_posix()
        for floor in ("proto/python", "services", "clients", "tests")
        for path in (REPOSITORY / floor).glob("**/gymmesh*/__init__.py")
    }
    assert on_disk == set(rooms)


def test_every_room_is_under_the_import_rules(project: dict[str, Any]) -> None:
    rooms = packages(project["tool"]["hatch"]["build"]["sources"])
    assert set(project["tool"]["importlinter"]["root_packages"]) == rooms


def test_the_wheel_holds_every_room_at_top_level_and_the_contract(
    project: dict[str, Any], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    rooms = packages(project["tool"]["hatch"]["build"]["sources"])
    assert {name for name in top if not name.endswith(".dist-info")} == rooms
    assert rooms <= {name.split("/")[0] for name in names if name.endswith("/py.typed")}
    contract = {
        path.relative_to(REPOSITORY / "proto").as_posix()
        for path in (REPOSITORY / "proto" / "gymmesh").rglob("*.proto")
    }
    assert {f"gymmesh/proto/{name}" for name in contract} <= set(names)
    vectors = {
        path.relative_to(REPOSITORY / "tests" / "contract").as_posix()
        for kind in ("vectors", "fold_vectors")
        for path in (REPOSITORY / "tests" / "contract" / kind).glob("*.json")
    }
    assert vectors
    assert {f"gymmesh_conformance/data/{name}" for name in vectors} <= set(names)


def test_an_environment_with_the_wheel_alone_has_gym_cli(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    fresh = tmp_path / "env"
    venv.create(fresh, with_pip=False)
    python = fresh / "bin" / "python"
    install = ["pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True, timeout=300)
    # The dependencies are those of this environment; its .pth files, which lead to the checkout,
    # are not read from there. `make test-wheel` installs the dependencies, too.
    (site,) = fresh.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    where = "import gymmesh_cli, gymmesh; print(gymmesh_cli.__file__)"
    for command, said in (
        ([str(python), "-c", where], str(site)),
        ([str(fresh / "bin" / "gym-cli"), "--version"], "gym-cli "),
        ([str(fresh / "bin" / "gym-cli"), "collect", "--help"], "--skip-invalid"),
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


def test_the_wheel_is_built_without_a_development_environment() -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "wheel"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert ".venv" not in plan.stdout
    assert "setup.sh" not in plan.stdout


def distributions(lines: list[str]) -> set[str]:
    """The packages of requirements, normalised; gymmesh itself is left out."""
    found = {re.split(r"[^a-z0-9-]", line.lower().replace("_", "-"))[0] for line in lines}
    return found - {"gymmesh"}


def test_only_extras_bring_their_libraries(project: dict[str, Any]) -> None:
    core = distributions(project["project"]["dependencies"])
    extras = dict(project["project"]["optional-dependencies"])
    del extras["dev"]
    brought = distributions([line for lines in extras.values() for line in lines])
    assert {"duckdb", "math-verify", "mcp", "openai", "py-consul", "simpleeval", "vllm"} <= brought
    assert not core & brought


def test_the_core_imports_each_of_its_dependencies(project: dict[str, Any]) -> None:
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(name.lower().replace("_", "-"), set()).add(module)
    imported = {
        found.group(1)
        for room in project["tool"]["hatch"]["build"]["sources"]
        for path in (REPOSITORY / room).rglob("*.py")
        if "environments" not in path.parts
        for found in re.finditer(
            r"^ *(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    unused = {
        name
        for name in distributions(project["project"]["dependencies"])
        if not modules[name] & imported
    }
    assert unused == set()


def test_the_extra_all_holds_every_other(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]

    def closed(name: str) -> set[str]:
        inner = re.findall(r"gymmesh\[([^\]]*)\]", " ".join(extras[name]))
        names = {one for group in inner for one in group.split(",")}
        return {name}.union(*(closed(one) for one in names))

    # vllm brings a torch of the machine's, tokenizers and renderers are of those who serve or train
    # models by token ids, and of trackers people have one; the others are names
    # for what is there.
    apart = {"mlflow", "renderers", "tokenizer", "trackio", "vllm", "wandb"}
    assert extras.keys() - closed("all") == {"demo", "dev", "instructions"} | apart
    assert closed("demo") | closed("instructions") <= closed("all") | {"demo", "instructions"}


def test_no_room_imports_an_extra_when_imported(project: dict[str, Any]) -> None:
    rooms = sorted(packages(project["tool"]["hatch"]["build"]["sources"]))
    code = (
        f"import sys, {', '.join(rooms)}; print(*sorted({EXTRA_LIBRARIES!r} & sys.modules.keys()))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert out.stdout.strip() == ""


def test_locks_are_exact_and_name_no_host() -> None:
    for path in (REPOSITORY / "requirements").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text
        requirements = re.findall(r"^[a-z0-9][^\s]*", text, flags=re.MULTILINE)
        assert requirements
        assert all("==" in line for line in requirements)
