"""Puts the same Inspect tasks on trial with falsepass and with the audit, and prints a table.

Run it as `.venv/bin/python -m tests.audit.beside_falsepass.compare [TASK …]`, some minutes. It
installs falsepass and Inspect into .cache/falsepass first. Both call the tasks' own scorers.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gymmesh_audit import AuditOptions, Report
from gymmesh_mesh.authoring.auditing import audit_here
from gymmesh_resource import Environment, Expected, Rollout, Session, Task
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.expected import AnswerKind

ROOT: Final = Path(__file__).parents[3]
PYTHON: Final = ROOT / ".cache/falsepass/bin/python"
RULES: Final = Path(__file__).with_name("inspect_rules.py")
SCORES: Final = Path(__file__).with_name("score_inspect.py")
# Of each rule: how a reply is written, and of which kind its answers are.
FORMS: Final[Mapping[str, tuple[str, AnswerKind]]] = {
    "demo": ("<answer>{answer}</answer>", "number"),
    "included": ("{answer}", "text"),
    "matched_anywhere": ("{answer}", "number"),
    "matched_at_the_end": ("{answer}", "number"),
    "first_of_a_pattern": ("ANSWER: {answer}", "number"),
    "a_line": ("ANSWER: {answer}", "text"),
    "options": ("ANSWER: {answer}", "choice"),
    "the_words": ("{answer}", "text"),
    "small_numbers": ("ANSWER: {answer}", "number"),
    "nan_passes": ("<answer>{answer}</answer>", "number"),
    "units_stripped": ("<answer>{answer}</answer>", "text"),
    "parts_of_dates": ("<answer>{answer}</answer>", "text"),
    "numbers_in_tags": ("<answer>{answer}</answer>", "number"),
    "words_in_tags": ("<answer>{answer}</answer>", "text"),
}


class InspectRule(Environment[None]):
    """An Inspect task, scored by its own scorers in a process where Inspect is installed."""

    reward_range = (0.0, 1.0)
    verify_needs_session = False

    def __init__(self, name: str) -> None:
        command = [str(PYTHON), str(SCORES), str(RULES), name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._turn = asyncio.Lock()
        self._form, self._kind = FORMS[name]
        self._samples: list[dict[str, Any]] = self._read()

    async def close(self) -> None:
        """End the process."""
        self._process.kill()  # Inspect takes seconds to end
        await asyncio.to_thread(self._process.communicate)

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """Its samples."""
        for number, sample in enumerate(self._samples):
            yield {
                "task_id": f"sample-{number}",
                "responses_create_params": {"input": sample["input"]},
                "sample": number,
            }

    def expected(self, task: Task) -> Expected:
        """The sample's target."""
        sample = self._samples[task.payload["sample"]]
        letters = "ABCD"[: len(sample["choices"] or ())]
        return Expected(sample["target"], self._kind, form=self._form, choices=list(letters))

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        """Ask the process, which answers one reply after the other."""
        reply = rollout.answer.encode("utf-8", "replace").decode()
        async with self._turn:
            return await asyncio.to_thread(self._ask, rollout.task.payload["sample"], reply)

    def _ask(self, sample: int, reply: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"sample": sample, "reply": reply}) + "\n")
        self._process.stdin.flush()
        return float(self._read()["score"])

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def install() -> None:
    """Install falsepass and Inspect, unless they are there."""
    if PYTHON.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(PYTHON.parents[1])], check=True)
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "falsepass==0.11.0", "inspect_ai", "openai"]
    subprocess.run(pip, check=True)


def by_falsepass(name: str) -> list[str]:
    """The probes of falsepass that failed, as PROBE/variant with the number of its runs."""
    folder = PYTHON.parents[1] / "audits" / name
    folder.mkdir(parents=True, exist_ok=True)
    spec = f"{RULES}@{name}"
    settings = f'[env]\nid = "local/{name}"\nframework = "inspect"\ntask = "{spec}"\n'
    (folder / "env.toml").write_text(settings, encoding="utf-8")
    command = [str(PYTHON), "-m", "falsepass.runner", str(folder), "-n", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800, check=False)
    results = folder / "probe-results.json"
    if done.returncode or not results.exists():
        return [f"not run: {done.stderr.strip()[-200:]}"]
    counts: dict[str, list[int]] = {}
    for one in json.loads(results.read_text(encoding="utf-8"))["results"]:
        failed = counts.setdefault(f"{one['probe']}/{one['variant']}", [0, 0])
        failed[0] += one["passed"] is False
        failed[1] += 1
    return [f"{key} {bad}/{runs}" for key, (bad, runs) in counts.items() if bad]


async def by_audit(name: str) -> Report:
    """The audit's report."""
    rule = InspectRule(name)
    return await audit_here(
        name, EnvironmentConfig(use="tests"), None, AuditOptions(), instance=rule
    )


def main(names: Sequence[str]) -> None:
    """Print what each finds on each task."""
    install()
    for name in names or FORMS:
        report = asyncio.run(by_audit(name))
        found = [f"{one.key} {one.problem} {one.count}/{one.tries}" for one in report.findings]
        print(f"## {name}")
        print(f"falsepass ({len(probes := by_falsepass(name))}): {'; '.join(probes)}")
        print(f"audit ({len(found)}): {'; '.join(found)}")
        print(f"measured: {'; '.join(report.notes)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
