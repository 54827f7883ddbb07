"""The images: linted, pinned, and made of what the lock file and the chart say."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import yaml

from tests.deploy.chart import BOUND_S, SOURCE, Chart
from tests.support.docs import ROOT

IMAGES = ROOT / "deploy" / "images"
DOCKERFILE = (IMAGES / "Dockerfile").read_text()
# What bubblewrap calls to make a sandbox.
NEEDED = {
    *("clone", "clone3", "mount", "pivot_root", "prctl", "seccomp", "setns", "umount2", "unshare"),
}


def test_hadolint_has_nothing_to_say(tools: Path) -> None:
    program = tools / "python" / "bin" / "hadolint"
    done = subprocess.run(
        [program, IMAGES / "Dockerfile"],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_what_hadolint_is_told_to_leave_is_explained() -> None:
    lines = DOCKERFILE.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("# hadolint"):
            assert lines[number - 1].startswith("# "), line


def test_the_base_is_a_version_and_packages_have_hashes() -> None:
    (base,) = re.findall(r"^ARG BASE=python:(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"3\.\d+\.\d+-slim-\w+", base)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}", "services"}
    assert "--require-hashes" in DOCKERFILE
    locked = (ROOT / "requirements" / "image.txt").read_text()
    packages = re.findall(r"^[a-z0-9][^\s]*==", locked, re.MULTILINE)
    assert {"py-consul==", "xds-protos==", "grpcio=="} <= set(packages)


def test_the_images_run_as_the_pods_do(chart: Chart) -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users[0] == users[-1] == "10001:10001"
    workload = next(iter(chart.render("gpu").workloads()))
    assert workload.spec["securityContext"]["runAsUser"] == 10001
    assert workload.spec["securityContext"]["runAsGroup"] == 10001
    assert 'ENTRYPOINT ["tini", "--", "gym-cli"]' in DOCKERFILE


def test_the_build_is_given_what_the_wheel_is_made_of_and_no_more() -> None:
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    given = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((ROOT / one).exists() for one in given)
    assert not {".git", ".venv", "docs", "tests", "."} & given


def test_the_sandboxs_profile_allows_what_bubblewrap_needs_and_is_the_charts() -> None:
    profile = json.loads((IMAGES / "sandbox-seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    (rule,) = profile["syscalls"]
    assert rule["action"] == "SCMP_ACT_ERRNO"
    denied = set(rule["names"])
    assert not denied & NEEDED
    assert {"ptrace", "bpf", "init_module", "kexec_load", "keyctl", "io_uring_setup"} <= denied
    values = yaml.safe_load((SOURCE / "values.yaml").read_text())
    named = values["sandbox"]["seccompProfile"]["localhostProfile"]
    assert named.rpartition("/")[2] == "sandbox-seccomp.json"


def test_the_sbom_lists_what_is_locked(tmp_path: Path) -> None:
    out = tmp_path / "sbom.json"
    subprocess.run(
        [ROOT / "tools" / "sbom.sh"],
        env=os.environ | {"OUT": str(out)},
        check=True,
        capture_output=True,
        timeout=BOUND_S,
    )
    bom = json.loads(out.read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    listed = {(one["name"], one["version"]) for one in bom["components"]}
    locked = re.findall(
        r"^([a-z0-9][^\s=]*)==([^\s;]+)", (ROOT / "requirements" / "image.txt").read_text(), re.M
    )
    assert listed == set(locked)
