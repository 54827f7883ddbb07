"""The reward that a task's tests wrote, by the rules of Harbor and of Terminal-Bench. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from gymmesh_resource.environments.harbor.task import PrintedResult
from gymmesh_responses import CodecError, loads

#: In the order in which they count.
REWARD_FILES: Final = ("reward.json", "reward.txt")
_SUMMARY: Final = "short test summary info"
_PASSED: Final = ("PASSED", "XFAIL", "SKIPPED")
_LOST: Final = ("FAILED", "ERROR", "XPASS")
# The benchmarks whose tests print one word between two marks, and the word of success.
_MARKED: Final[Mapping[str, tuple[str, str]]] = {
    "swebench": ("SWEBench", "PASSED"),
    "sweperf": ("SWE-Perf", "PASSED"),
    "mlebench": ("MLEBench", "ALL TESTS PASSED"),
}
#: What tests of Terminal-Bench may print.
PARSERS: Final[tuple[PrintedResult, ...]] = (
    "pytest", "swebench", "swelancer", "mlebench", "sweperf"
)  # fmt: skip


class NoReward(Exception):
    """The tests ended without a readable reward: a fault of the verifier."""


def read_rewards(files: Mapping[str, bytes]) -> dict[str, float]:
    """The rewards by name, from the first of REWARD_FILES that exists. Raises NoReward.

    files: contents by name.
    """
    name = next((one for one in REWARD_FILES if one in files), None)
    if name is None:
        raise NoReward(f"the tests wrote neither {' nor '.join(REWARD_FILES)}")
    if not files[name].strip():
        raise NoReward(f"{name} is empty")
    return _of_json(files[name]) if name == "reward.json" else {"reward": _of_text(files[name])}


def _of_text(content: bytes) -> float:
    try:
        value = float(content.decode())
    except ValueError:
        raise NoReward(f"reward.txt has no number: {content[:80]!r}") from None
    if not math.isfinite(value):
        raise NoReward(f"reward.txt has {value}, which is not finite")
    return value


def _of_json(content: bytes) -> dict[str, float]:
    try:
        found = loads(content)
    except CodecError as error:
        raise NoReward(f"reward.json is not JSON: {error}") from None
    if found == {}:
        raise NoReward("the JSON object in reward.json is empty")
    if not isinstance(found, dict):
        raise NoReward("reward.json must be a JSON object whose values are numbers")
    for name, value in found.items():
        # Harbor takes true and false as numbers.
        if not isinstance(value, int | float) or not _finite(value):
            raise NoReward(f"reward.json has {name} = {str(value)[:80]!r}, not a finite number")
    return {str(name): float(value) for name, value in found.items()}


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def main_reward(rewards: Mapping[str, float], key: str) -> float:
    """The rollout's reward: the one with this key, or the only one. Raises NoReward."""
    if key in rewards:
        return rewards[key]
    if len(rewards) == 1:
        return next(iter(rewards.values()))
    raise NoReward(
        f"reward.json has the rewards {', '.join(map(repr, rewards))}, but no {key!r}; set the "
        "option 'reward' to one of the names in reward.json"
    )


def read_printed(output: str, parser: PrintedResult) -> dict[str, float]:
    """The rewards of tests that print their result, as the parser of Terminal-Bench reads it.

    Raises NoReward if the result is missing.
    """
    if parser == "pytest":
        return _of_summary(output)
    if parser == "swelancer":
        return {"reward": float(_lancer_won(output.lower()))}
    name, success = _MARKED[parser]
    start, end = f"{name} results starts here", f"{name} results ends here"
    if start not in output or end not in output:
        raise NoReward(f"the tests printed no result between {start!r} and {end!r}")
    result = output.split(start, 1)[1].rsplit(end, 1)[0].strip()
    return {"reward": float(result == success)}


def _lancer_won(output: str) -> bool:
    for word, won in (("swe lancer success", True), ("swe lancer failure", False)):
        if word in output:
            return won
    if "user_tool" in output and "completed" in output:
        return True
    raise NoReward("the tests printed neither 'swe lancer success' nor 'swe lancer failure'")


def _of_summary(output: str) -> dict[str, float]:
    """The rewards of a run of pytest, by its short summary: 1 where all tests passed.

    Raises NoReward where there is no summary, or no test in it.
    """
    lines = iter(output.splitlines())
    if not any(_opens_summary(line) for line in lines):
        raise NoReward("the tests printed no short test summary of pytest")
    results: dict[str, bool] = {}
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        status = word.strip(":")
        if not rest.strip() or status not in (*_PASSED, *_LOST):
            continue
        if status == "FAILED" and " - " in rest:
            rest = rest.rpartition(" - ")[0]  # what failed follows the name
        results[rest.strip().partition("::")[2] or rest.strip()] = status in _PASSED
    if not results:
        raise NoReward("the short test summary of pytest names no test")
    passed = sum(results.values())
    return {
        "reward": float(passed == len(results)),
        "passed": float(passed),
        "failed": float(len(results) - passed),
    }


def _opens_summary(line: str) -> bool:
    before, found, after = line.lower().partition(_SUMMARY)
    return bool(found) and before.rstrip().endswith("=") and after.lstrip().startswith("=")
