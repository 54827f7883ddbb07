from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model import ModelConfig, metrics
from gymmesh_model.answer_cache import AnswerCache, AnswerKeys
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.config import CacheConfig
from gymmesh_model.tokens.record import TokenRecord
from gymmesh_responses import new_message
from gymmesh_runtime.config import ConfigError

KEYS = [f"{number:02x}" + "0" * 62 for number in range(40)]


def answer(text: str = "4", status: str = "completed") -> responses_pb2.Response:
    return responses_pb2.Response(
        id="resp_1", status=status, output=[new_message("assistant", text)]
    )


async def opened(folder: Path, max_bytes: int = 1_000_000, name: str = "judge") -> AnswerCache:
    cache = AnswerCache(name, CacheConfig(path=str(folder), max_bytes=max_bytes))
    await cache.open()
    return cache


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def counted(name: str) -> dict[str, float]:
    return {
        outcome: metrics.MODEL_CACHE_LOOKUPS.labels(name, outcome).value
        for outcome in ("hit", "miss", "damaged", "failed")
    }


async def test_an_answer_is_kept_across_processes(tmp_path: Path) -> None:
    cache = await opened(tmp_path / "new" / "folder", name="kept")
    assert await cache.get(KEYS[0]) is None
    await cache.put(KEYS[0], answer())
    other = await opened(tmp_path / "new" / "folder", name="kept")
    assert await other.get(KEYS[0]) == answer()
    assert await other.get(KEYS[1]) is None
    assert counted("kept") == {"hit": 1, "miss": 2, "damaged": 0, "failed": 0}


async def test_only_whole_answers_are_kept(tmp_path: Path) -> None:
    cache = await opened(tmp_path)
    for status in ("incomplete", "failed", "in_progress", ""):
        await cache.put(KEYS[0], answer(status=status))
    assert files(tmp_path) == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "no message"])
async def test_a_damaged_entry_is_a_miss_and_removed(tmp_path: Path, damage: str) -> None:
    cache = await opened(tmp_path, name=damage)
    await cache.put(KEYS[0], answer())
    (path,) = files(tmp_path)
    raw = bytearray(path.read_bytes())
    if damage == "flipped":
        raw[-3] ^= 1
    path.write_bytes(
        {
            "cut": bytes(raw[:-1]),
            "flipped": bytes(raw),
            "empty": b"",
            "foreign": b"hello, there",
            "no message": _signed(b"\xff\xff"),
        }[damage]
    )
    assert await cache.get(KEYS[0]) is None
    assert files(tmp_path) == []
    assert counted(damage)["damaged"] == 1
    await cache.put(KEYS[0], answer("5"))
    assert await cache.get(KEYS[0]) == answer("5")


def _signed(body: bytes) -> bytes:
    from gymmesh_model import answer_cache as store

    return store._packed(body)


async def test_those_not_asked_for_longest_go_first(tmp_path: Path) -> None:
    size = len(_signed(answer().SerializeToString()))
    cache = await opened(tmp_path, max_bytes=size * 20)
    for number in range(20):
        await cache.put(KEYS[number], answer())
        path = tmp_path / KEYS[number][:2] / f"{KEYS[number]}.answer"
        os.utime(path, (1000.0 + number, 1000.0 + number))
    assert len(files(tmp_path)) == 20
    # One that was written first is asked for again.
    assert await cache.get(KEYS[0]) is not None
    await cache.put(KEYS[20], answer())
    await cache.put(KEYS[21], answer())
    left = {path.name[:2] for path in files(tmp_path)}
    assert len(left) <= 20
    assert {KEYS[0][:2], KEYS[19][:2]} <= left
    assert KEYS[1][:2] not in left


async def test_the_folder_stays_within_its_bound(tmp_path: Path) -> None:
    bound = 20_000
    caches = [await opened(tmp_path, max_bytes=bound) for _ in range(3)]
    for number in range(200):
        key = f"{number:02x}"[-2:] + f"{number:062x}"
        await caches[number % 3].put(key, answer("x" * 400))
        total = sum(path.stat().st_size for path in files(tmp_path))
        # Each process may be a twentieth, and an answer, behind.
        assert total <= bound * (1 + 3 / 20) + 3 * 600
    assert len(files(tmp_path)) > 20


async def test_an_answer_larger_than_the_bound_is_passed_over(tmp_path: Path) -> None:
    cache = await opened(tmp_path, max_bytes=100)
    await cache.put(KEYS[0], answer("x" * 200))
    assert files(tmp_path) == []


async def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    old, new = tmp_path / "ab" / ".fresh-old", tmp_path / "ab" / ".fresh-new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1000.0, 1000.0))
    foreign = tmp_path / "ab" / "notes.txt"
    foreign.write_text("mine")
    await opened(tmp_path, max_bytes=1)
    assert files(tmp_path) == sorted((new, foreign))


async def test_many_write_and_read_the_same_entry(tmp_path: Path) -> None:
    caches = [await opened(tmp_path) for _ in range(4)]
    answers = [answer("x" * 5000), answer("y" * 5000)]

    async def work(cache: AnswerCache, number: int) -> None:
        for _ in range(20):
            await cache.put(KEYS[0], answers[number % 2])
            assert await cache.get(KEYS[0]) in answers

    await asyncio.gather(*(work(cache, number) for number, cache in enumerate(caches)))
    assert len(files(tmp_path)) == 1


async def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cache.path .* cannot be used") as caught:
        await opened(tmp_path / "file" / "cache")
    assert caught.value.path == "models.judge"


async def test_a_disk_that_fails_costs_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = await opened(tmp_path, name="failing")
    # What is a folder can be neither read nor replaced as a file, whoever one is.
    (tmp_path / KEYS[0][:2] / f"{KEYS[0]}.answer").mkdir(parents=True)
    assert await cache.get(KEYS[0]) is None
    await cache.put(KEYS[0], answer())
    assert counted("failing")["failed"] == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not any(path.name.startswith(".fresh-") for path in files(tmp_path))


async def test_others_cannot_read_what_is_kept(tmp_path: Path) -> None:
    cache = await opened(tmp_path)
    await cache.put(KEYS[0], answer())
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --- keys

URL = "http://me:secret@h:1/v1"
PARAMS: dict[str, Any] = {"input": "2 + 2?", "temperature": 0, "model": "m"}


def keys(endpoint_model: str = "m", **more: Any) -> AnswerKeys:
    given = {"backend": "chat", "url": URL, "cache": CacheConfig(path="c", any_temperature=True)}
    return AnswerKeys(ModelConfig(**{**given, **more}), endpoint_model)


def call(params: dict[str, Any] | None = None, **more: Any) -> BackendCall:
    given = {"rollout_id": "r1", "request_id": "q1", "seed": None, "timeout": 1.0, **more}
    return BackendCall(params=PARAMS if params is None else params, **given)


SAME = [
    (keys(), call(rollout_id="r2", request_id="q2", timeout=2.0), None),
    (keys(), call(dict(reversed(PARAMS.items()))), None),
    (keys(), call({**PARAMS, "top_p": None}), None),
    (keys(url="http://h:1/v1/"), call(), None),
    (keys(api_key="other", timeout_s=3.0, max_concurrency=2), call(), None),
]
OTHER = [
    (keys(), call({**PARAMS, "input": "2 + 3?"}), None),
    (keys(), call({**PARAMS, "temperature": 0.0}), None),
    (keys(), call({**PARAMS, "top_p": 1}), None),
    (keys(), call(seed=0), None),
    (keys(), call(), 0),
    (keys("other"), call(), None),
    (keys(backend="responses"), call(), None),
    (keys(url="http://h:2/v1"), call(), None),
    (keys(options={"think_tags": "read"}), call(), None),
]


def test_keys_are_of_all_that_decides() -> None:
    key = keys().key(call(), None)
    assert key is not None
    assert len(key) == 64
    assert [one.key(asked, version) for one, asked, version in SAME] == [key] * len(SAME)
    others = [one.key(asked, version) for one, asked, version in OTHER]
    assert len({*others, key}) == len(OTHER) + 1


def test_what_must_be_made_has_no_key() -> None:
    strict = keys(cache=CacheConfig(path="c"), params={"temperature": 0})
    assert strict.key(call(), None) is not None
    assert strict.key(call({**PARAMS, "temperature": 0.0}), None) is not None
    for temperature in (0.7, None, "0"):
        assert strict.key(call({**PARAMS, "temperature": temperature}), None) is None
    assert strict.key(call({"input": "x"}), None) is None
    assert keys().key(call(record=TokenRecord()), None) is None


_JSON = st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=8)


@given(st.dictionaries(st.text(), _JSON, max_size=6))
def test_any_parameters_have_a_key(params: dict[str, Any]) -> None:
    key = keys().key(call(params), None)
    assert key == keys().key(call(dict(sorted(params.items(), reverse=True))), None)


def test_text_with_unpaired_surrogates_has_a_key() -> None:
    assert keys().key(call({"input": "\ud800"}), None) != keys().key(call({"input": "?"}), None)
