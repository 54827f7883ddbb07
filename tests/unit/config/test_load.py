"""The loader: merging, overrides, variables, types, and what its errors say."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.config import ConfigError, Secret, load_config, public_view


class Kind(StrEnum):
    CHAT = "chat"
    LOCAL = "local"


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    backend: Literal["chat", "responses", "local"] = "local"
    kind: Kind = Kind.LOCAL
    url: str | None = None
    api_key: Secret | None = None
    timeout_s: float = 120.0
    max_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 64
    stream: bool = False
    params: dict[str, Any] = {}
    stops: list[str] = []

    def __post_init__(self) -> None:
        if self.backend == "chat" and self.url is None:
            raise ValueError("backend chat needs a url")


class Mesh(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: dict[str, Model] = {}
    seed: int | None = None
    free: Any = None


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    number: int = 0
    text: str = ""


class Several(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parts: dict[str, Part] = {}
    listed: list[int] = []
    either: dict[str, float | Part] = {}


MISTAKEN = """parts:
  a: {numbr: 1}
  b: {number: many}
  c: {text: [1]}
listed: [
  x, 2,
  y]
either: {a: abc}
"""


def write(folder: Path, text: str, name: str = "mesh.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def load(folder: Path, text: str, *sets: str, **env: str) -> Mesh:
    return load_config([write(folder, text)], sets, Mesh, env)


def test_files_merge_left_to_right_maps_deep_lists_replaced(tmp_path: Path) -> None:
    one = write(tmp_path, "models: {a: {url: x, stops: [p, q]}, b: {url: y}}", "one.yaml")
    two = write(tmp_path, "models:\n  a: {timeout_s: 3, stops: [r]}\n", "two.yaml")
    mesh = load_config([one, two], [], Mesh, {})
    assert mesh.models["a"] == Model(url="x", timeout_s=3.0, stops=["r"])
    assert mesh.models["b"].url == "y"


def test_all_mistakes_of_a_file_are_said(tmp_path: Path) -> None:
    path = write(tmp_path, MISTAKEN)
    with pytest.raises(ConfigError) as refused:
        load_config([path], [], Several, {})
    lines = refused.value.sentences.splitlines()
    numbers = [line.removeprefix(f"{path}:").partition(": ")[0] for line in lines]
    assert numbers == list("234678")
    assert len(refused.value.more) == len(lines) - 1


def test_a_value_of_several_types_is_refused_by_one_of_its_shape(tmp_path: Path) -> None:
    for text, said in (
        ("either: {a: abc}", "either.a: expected a number, got the text 'abc'"),
        ("either: {a: {numbr: 1}}", "either.a.numbr: unknown key; did you mean 'number'?"),
        ("either: {a: [1]}", "either.a: expected a map of keys, got a list"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_config([write(tmp_path, text)], [], Several, {})
        assert str(refused.value).endswith(said)


def test_overrides_are_yaml_and_come_last(tmp_path: Path) -> None:
    mesh = load(
        tmp_path,
        "models: {a: {timeout_s: 3}}",
        "models.a.timeout_s=1e-3",
        'models."gpt-4.1".params={temperature: 0.5}',
        "seed=7",
        "free=[1, 1.0, yes, '2']",
    )
    assert mesh.models["a"].timeout_s == 0.001
    assert mesh.models["gpt-4.1"].params == {"temperature": 0.5}
    assert mesh.seed == 7
    assert repr(mesh.free) == "[1, 1.0, True, '2']"


def test_variables(tmp_path: Path) -> None:
    text = """
models:
  a:
    api_key: ${KEY}
    timeout_s: ${WAIT:-5}
    url: http://${HOST:-localhost}:${PORT}/v1
    stream: "${ON}"
    params:
      temperature: "${T}"
      top_p: ${T}
      note: $${T}
"""
    model = load(tmp_path, text, KEY="12345", PORT="80", T="0.5", ON="true").models["a"]
    assert model.api_key == "12345"
    assert model.timeout_s == 5.0
    assert model.stream is True
    assert model.url == "http://localhost:80/v1"
    assert model.params == {"temperature": "0.5", "top_p": 0.5, "note": "${T}"}


def test_a_secret_never_shows(tmp_path: Path) -> None:
    mesh = load(tmp_path, "models: {a: {api_key: abc-secret}}")
    assert "abc-secret" not in repr(mesh)
    assert "abc-secret" not in repr(public_view(mesh))
    assert public_view(mesh)["models"]["a"]["api_key"] == "***"


def test_a_variables_text_is_not_shown_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "seed: ${KEY}", KEY="abc-secret")
    assert "abc-secret" not in str(caught.value)


def test_an_overridden_value_needs_no_variable(tmp_path: Path) -> None:
    assert load(tmp_path, "seed: ${NOT_SET}", "seed=1").seed == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("models:\n  a:\n    tmeout_s: 3\n",
         "mesh.yaml:3: models.a.tmeout_s: unknown key; did you mean 'timeout_s'?"),
        ("modles: {}\n", "mesh.yaml:1: modles: unknown key; did you mean 'models'?"),
        ("models:\n  a:\n    timeout_s: soon\n",
         "mesh.yaml:3: models.a.timeout_s: expected a number, got the text 'soon'"),
        ("models:\n  a:\n    timeout_s: [1]\n",
         "mesh.yaml:3: models.a.timeout_s: expected a number, got a list"),
        ("models:\n  a: 7\n", "mesh.yaml:2: models.a: expected a map of keys, got 7"),
        ("models:\n  a:\n    backend: chta\n",
         "mesh.yaml:3: models.a.backend: the text 'chta' is not valid here; did you mean 'chat'?"),
        ("models:\n  a:\n    kind: lokal\n",
         "mesh.yaml:3: models.a.kind: the text 'lokal' is not valid here; did you mean 'local'?"),
        ("models:\n  a: {backend: chat}\n", "mesh.yaml:2: models.a: backend chat needs a url"),
        ("models:\n  a: {max_concurrency: 0}\n",
         "mesh.yaml:2: models.a.max_concurrency: expected int >= 1, got 0"),
        ("models:\n  a: {url: 7}\n",
         "mesh.yaml:2: models.a.url: expected text, got 7; put the value in quotes"),
        ("models:\n  a: {stops: [a, 3]}\n",
         "mesh.yaml:2: models.a.stops[1]: expected text, got 3; put the value in quotes"),
        ("seed: 1\nseed: 2\n",
         "mesh.yaml:2: seed: the key is given twice (first on line 1);"
         " remove one of the two lines"),
        ("seed: ${NOPE}\n",
         "mesh.yaml:1: seed: the environment variable NOPE is not set;"
         " set this variable, or give a default with ${NOPE:-default}"),
        ("free: ${1}\n",
         "mesh.yaml:1: free: contains '${', but not as ${NAME} or ${NAME:-default};"
         " write '$${' for the two characters '${'"),
        ("seed: [1\n", "mesh.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("- 1\n", "mesh.yaml:1: must hold a map of keys at its root"),
        ("models:\n  a: {stream: maybe}\n",
         "mesh.yaml:2: models.a.stream: expected true or false, got the text 'maybe'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert str(caught.value).removeprefix(f"{tmp_path}/") == sentence


def test_a_missing_key_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the key 'name' is missing"):
        load_config([write(tmp_path, "")], [], Needs, {})
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: no such file"):
        load_config([tmp_path / "gone.yaml"], [], Needs, {})


@pytest.mark.parametrize("text", ["", "a", "=1", "a..b=1", ".a=1", "a.=1"])
def test_a_broken_override(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected key.path=value"):
        load_config([], [text], Mesh, {})


def test_an_override_through_a_scalar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"models.a.url is a single value"):
        load(tmp_path, "models: {a: {url: x}}", "models.a.url.b=1")
    with pytest.raises(ConfigError, match=r"--set models.a.urll: models.a.urll: unknown key"):
        load(tmp_path, "", "models.a.urll=1")


def test_merge_keys_and_a_cycle(tmp_path: Path) -> None:
    mesh = load(tmp_path, "free: &f {a: 1, b: 2}\nmodels: {m: {params: {<<: *f, b: 3}}}")
    assert mesh.models["m"].params == {"a": 1, "b": 3}
    with pytest.raises(ConfigError):
        load(tmp_path, "free: &f [*f]")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=VALUES)
def test_free_values_are_what_yaml_says(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    path = tmp_path_factory.mktemp("free") / "c.yaml"
    text = yaml.safe_dump({"free": value}, allow_unicode=True).replace("${", "$${")
    path.write_text(text, encoding="utf-8")
    assert (
        load_config([path], [], Mesh, {}).free == yaml.safe_load(text.replace("$${", "${"))["free"]
    )


MAPS = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def deep(under: Any, over: Any) -> Any:
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return {**under, **{key: deep(under[key], over[key]) if key in under else over[key]
                        for key in over}}  # fmt: skip


@given(one=MAPS, two=MAPS, three=MAPS)
def test_merging_is_the_deep_merge(
    tmp_path_factory: pytest.TempPathFactory, one: Any, two: Any, three: Any
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = [write(folder, yaml.safe_dump({"free": value}), f"{place}.yaml")
             for place, value in enumerate((one, two, three))]  # fmt: skip
    assert load_config(paths, [], Mesh, {}).free == deep(deep(one, two), three)
