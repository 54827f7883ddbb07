"""The chart through Helm itself: rendered, refused, linted; and its manifests as objects."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.docs import ROOT

SOURCE: Final = ROOT / "deploy" / "helm" / "gymmesh"
VALUE_FILES: Final = sorted(path.stem.removesuffix("-values") for path in SOURCE.glob("ci/*.yaml"))
RELEASE: Final = "mesh"
NAMESPACE: Final = "rollouts"
BOUND_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that makes pods, and the pods' template."""

    manifest: dict[str, Any]
    template: dict[str, Any]

    @property
    def name(self) -> str:
        """Of the object."""
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def labels(self) -> dict[str, str]:
        """Of its pods."""
        labels: dict[str, str] = self.template["metadata"]["labels"]
        return labels

    @property
    def spec(self) -> dict[str, Any]:
        """Of its pods."""
        spec: dict[str, Any] = self.template["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        """The one container."""
        (container,) = self.spec["containers"]
        found: dict[str, Any] = container
        return found


@dataclass(frozen=True)
class Rendered:
    """What `helm template` makes of a value file."""

    name: str
    text: str

    @functools.cached_property
    def manifests(self) -> list[dict[str, Any]]:
        """All objects."""
        return [one for one in yaml.safe_load_all(self.text) if one]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The objects of a kind."""
        return [one for one in self.manifests if one["kind"] == kind]

    def workloads(self) -> Iterator[Workload]:
        """Whatever makes pods."""
        for one in self.manifests:
            spec = one.get("spec", {})
            if one["kind"] == "Pod":
                yield Workload(one, one)
            elif one["kind"] == "CronJob":
                yield Workload(one, spec["jobTemplate"]["spec"]["template"])
            elif one["kind"] in ("Deployment", "StatefulSet", "Job"):
                yield Workload(one, spec["template"])

    def services(self) -> list[Workload]:
        """Those that run a service of the mesh."""
        return [one for one in self.workloads() if one.manifest["kind"] == "Deployment"]

    def values(self) -> dict[str, Any]:
        """What the value file says."""
        text = (SOURCE / "ci" / f"{self.name}-values.yaml").read_text(encoding="utf-8")
        values: dict[str, Any] = yaml.safe_load(text)
        return values

    def isolating(self) -> set[str]:
        """The Deployments in whose pods bubblewrap runs."""
        values = self.values()
        found = {
            f"{RELEASE}-gymmesh-environment-{name}"
            for name, one in values["environments"].items()
            if (one or {}).get("sandbox")
        }
        return found | {
            f"{RELEASE}-gymmesh-sandbox-{name}"
            for name, one in values.get("sandboxes", {}).items()
            if one["config"].get("backend", "bubblewrap") == "bubblewrap"
        }

    def file(self, name: str) -> str:
        """A file of the mesh's ConfigMap."""
        (found,) = (one for one in self.of("ConfigMap") if name in one.get("data", {}))
        text: str = found["data"][name]
        return text


class Chart:
    """The chart in a folder of its own, and the Helm that works on it."""

    def __init__(self, helm: Path, folder: Path) -> None:
        self.path = folder / "gymmesh"
        shutil.copytree(SOURCE, self.path)
        self.helm = helm
        self._home = folder / "helm"
        self._rendered: dict[str, Rendered] = {}

    def later(self, folder: Path) -> Chart:
        """The same in a later version, of a later application."""
        found = Chart(self.helm, folder)
        about = found.path / "Chart.yaml"
        text = re.sub(r"(?m)^version: .*$", "version: 9.9.9", about.read_text())
        about.write_text(re.sub(r"(?m)^appVersion: .*$", 'appVersion: "9.9.9"', text))
        return found

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Helm, with no settings and no cache but its own here."""
        home = {name: str(self._home) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HOME")}
        return subprocess.run(
            [self.helm, *arguments], env=os.environ | home, capture_output=True, text=True,
            timeout=BOUND_S, check=False,
        )  # fmt: skip

    def values(self, name: str) -> Path:
        """The path of a value file."""
        return self.path / "ci" / f"{name}-values.yaml"

    def template(self, name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """`helm template` with a value file and more."""
        common: list[str | Path] = ["template", RELEASE, self.path, "--namespace", NAMESPACE]
        return self.run(*common, "--values", self.values(name), *arguments)

    def render(self, name: str, *arguments: str) -> Rendered:
        """The objects of a value file; it must render."""
        if arguments:
            return self._render(name, *arguments)
        if name not in self._rendered:
            self._rendered[name] = self._render(name)
        return self._rendered[name]

    def _render(self, name: str, *arguments: str) -> Rendered:
        done = self.template(name, *arguments)
        assert done.returncode == 0, done.stderr
        return Rendered(name, done.stdout)

    def refusal(self, name: str, *arguments: str | Path) -> str:
        """The sentence that it is refused with."""
        done = self.template(name, *arguments)
        assert done.returncode != 0, "it rendered"
        # Later lines are Helm's own advice.
        return done.stderr.partition("\n\nUse --debug")[0].strip()
