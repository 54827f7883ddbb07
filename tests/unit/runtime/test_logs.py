"""Logs: one traceback of each kind, counted, and no secrets; faults: what and where."""

from __future__ import annotations

import functools
import json
import logging
import traceback
from collections.abc import Callable
from types import FunctionType

import pytest

from gymmesh_runtime.config import Secret
from gymmesh_runtime.telemetry.current_rollout import RolloutRef, current_rollout, for_rollout
from gymmesh_runtime.telemetry.logs import Concealing, JsonLines, OneOfEach
from gymmesh_runtime.text.faults import describe, place_of, shown_traceback, traceback_id, words_of
from gymmesh_runtime.text.secrets import mask_secrets


def _raised(text: str) -> Exception:
    try:
        raise LookupError(text)
    except LookupError as error:
        return error


def _elsewhere(text: str) -> Exception:
    try:
        raise LookupError(text)
    except LookupError as error:
        return error


def _record(text: str, error: Exception | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("n", logging.ERROR, "f.py", 1, text, (), info)


def test_one_of_each_passes_and_the_others_are_counted() -> None:
    kinds = OneOfEach()
    passed = [kinds.filter(_record(f"id {n}", _raised(str(n)))) for n in range(100)]
    assert [number for number, ok in enumerate(passed, 1) if ok] == [1, 10, 100]
    assert kinds.filter(_record("id 0", _elsewhere("0")))
    assert kinds.filter(_record("said"))
    assert not kinds.filter(_record("said"))
    assert kinds.repeated() == [(100, "id 0"), (2, "said")]


def test_a_count_comes_without_the_traceback() -> None:
    kinds, formatter = OneOfEach(), Concealing("%(message)s")
    texts = []
    for number in range(10):
        record = _record("failed", _raised(str(number)))
        if kinds.filter(record):
            texts.append(formatter.format(record))
    assert "LookupError: 0" in texts[0]
    assert texts[1:] == ["failed (10 times so far)"]


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    Secret("team-9876-hidden")
    monkeypatch.setenv("A_SERVICE_TOKEN", "from-the-environment")
    text = (
        "team-9876-hidden from-the-environment Bearer abc.def.ghi sk-0123456789 "
        "http://me:word@host/ api_key='abcdef' password=abcdef"
    )
    shown = mask_secrets(text)
    for secret in ("9876", "from-the", "abc.def", "0123456789", "word@", "abcdef"):
        assert secret not in shown
    assert Concealing("%(message)s").format(_record(text)) == shown
    assert "9876" not in words_of(_raised(text))


def test_a_json_line_is_one_object_without_secrets_and_nothing_to_act_upon() -> None:
    secret = Secret('team-"quoted"-hidden')
    record = _record(f"wiped\x1b[2J\n{secret} \u202e 日本", _raised("sk-0123456789"))
    record.created = 1_700_000_000.25
    line = JsonLines().format(record)
    assert line.isprintable()
    found = json.loads(line)
    assert list(found)[:4] == ["time", "level", "logger", "message"]
    assert found["time"] == "2023-11-14T22:13:20.250Z"
    assert (found["level"], found["logger"]) == ("ERROR", "n")
    assert found["message"] == "wiped\x1b[2J\n*** \u202e 日本"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("LookupError: ***")
    assert "rollout_id" not in found
    assert "日本" in line


def test_a_json_line_names_the_rollout() -> None:
    def ids(record: logging.LogRecord) -> dict[str, str]:
        line = json.loads(JsonLines().format(record))
        return {key: value for key, value in line.items() if key.endswith("_id")}

    token = current_rollout.set(RolloutRef("r-1", "run-1"))
    try:
        assert ids(_record("x")) == {"rollout_id": "r-1", "run_id": "run-1"}
        with for_rollout("r-1"):  # an agent has said more
            assert ids(_record("x")) == {"rollout_id": "r-1", "run_id": "run-1"}
        with for_rollout("r-2"):
            assert ids(_record("x")) == {"rollout_id": "r-2"}
        record = _record("x")
        record.rollout_id = "r-3"  # what `extra=` does
        assert ids(record)["rollout_id"] == "r-3"
    finally:
        current_rollout.reset(token)
    with for_rollout("r-4"):
        assert ids(_record("x")) == {"rollout_id": "r-4"}
    assert ids(_record("x")) == {}


def test_words_are_one_bounded_line() -> None:
    assert words_of(_raised("a\n  b")) == "LookupError: a b"
    assert words_of(_raised("")) == "LookupError"
    assert len(words_of(_raised("x" * 10_000))) <= 300


def test_a_fault_names_the_file_and_line_and_has_one_id() -> None:
    first, again, other = _raised("1"), _raised("2"), _elsewhere("1")
    assert place_of(first).startswith("tests/unit/runtime/test_logs.py:")
    assert describe(first)["at"] == place_of(again) != place_of(other)
    assert traceback_id(first) == traceback_id(again) != traceback_id(other)
    assert "at" not in describe(LookupError("never raised"))


def test_the_place_is_the_authors_though_a_library_raised_it() -> None:
    with pytest.raises(ValueError, match="line 1") as caught:
        json.loads("{")
    assert place_of(caught.value).startswith("tests/unit/runtime/test_logs.py:")


def _through(module: str, file: str, callee: Callable[[], object]) -> Callable[[], object]:
    """A function of another module and file that calls `callee`."""

    def caller() -> object:
        return callee()

    code = caller.__code__.replace(co_filename=file)
    return FunctionType(code, {"__name__": module}, closure=caller.__closure__)


def _frames(error: BaseException, *, installed: bool = True) -> list[str]:
    shown = shown_traceback(error, installed=installed)
    assert shown[:2] == (type(error), error)
    return [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(shown[2])]


def _failing() -> None:
    raise LookupError("wanted")


@pytest.mark.parametrize("installed", [True, False])
def test_a_traceback_begins_with_the_authors_code(installed: bool) -> None:
    below = _through("gymmesh_resource.task", "/ours/task.py", _failing)
    authors = _through("shop", "/home/ada/shop.py", below)
    library = _through("numpy.linalg", "/lib/site-packages/numpy/linalg.py", authors)
    ours = _through("gymmesh_resource.serving", "/ours/serving.py", library)
    with pytest.raises(LookupError) as raised:
        _through("gymmesh_runtime.binding", "/ours/binding.py", ours)()
    error = raised.value
    # Without the test itself, which called all this.
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    expected = ["shop", "gymmesh_resource.task", __name__]
    assert _frames(error, installed=installed) == ["numpy.linalg"] * installed + expected


def test_a_traceback_without_the_authors_code_is_whole() -> None:
    library = _through("msgspec", "/lib/site-packages/msgspec/a.py", functools.partial(int, "x"))
    with pytest.raises(ValueError, match="'x'") as raised:
        _through("gymmesh_model.backends", "/ours/backends.py", library)()
    error = raised.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    assert _frames(error, installed=False) == ["gymmesh_model.backends", "msgspec"]
    assert _frames(error) == ["msgspec"]
    assert _frames(LookupError("never raised")) == []
