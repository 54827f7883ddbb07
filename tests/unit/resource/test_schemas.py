"""The schema that a model is shown and the check of what it sends agree; both are strict."""

from __future__ import annotations

import contextlib
import enum
import json
import string
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource import DefinitionError, Environment, Rollout, Session, tool
from gymmesh_resource.tools import (
    BadArguments,
    Toolset,
    arguments_schema,
    arguments_type,
    read_arguments,
    read_docstring,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: float
    y: float = 0.0


class Many(Environment[None]):
    @tool
    def all_kinds(
        self,
        session: Session[None],
        text: str,
        count: int,
        ratio: float,
        flag: bool,
        names: list[str],
        table: dict[str, int],
        maybe: str | None,
        unit: Literal["m", "km"],
        colour: Colour,
        point: Point,
        anything: Any,
        many: int = 1,
        more: list[int] = [],  # noqa: B006  # what is tested: such a default must not be shared
    ) -> str:
        """Take everything.

        It has a second paragraph.

        Args:
            text: some text,
                over two lines
            count (int): how many: a number
            flag: yes or no

        Returns:
            nothing that the model need know
        """
        return ""

    @tool(name="renamed")
    def strict(self, a: Annotated[str, "its own words"], point: list[Literal[1, 2]]) -> str:
        """Be strict."""
        return ""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


TOOLS = Toolset(Many())
ALL = TOOLS["all_kinds"]
GOOD: dict[str, Any] = {
    "text": "a", "count": 1, "ratio": 1, "flag": True, "names": ["b"], "table": {"k": 2},
    "maybe": None, "unit": "km", "colour": "blue", "point": {"x": 1.5}, "anything": [None],
}  # fmt: skip


def test_the_schema_is_strict_and_described() -> None:
    schema = ALL.schema
    assert schema["additionalProperties"] is False
    assert "session" not in schema["properties"]
    assert set(schema["required"]) == set(schema["properties"]) - {"many", "more"}
    assert schema["properties"]["text"]["description"] == "some text, over two lines"
    assert schema["properties"]["count"]["description"] == "how many: a number"
    assert "description" not in schema["properties"]["ratio"]
    assert ALL.message.function.description == "Take everything.\n\nIt has a second paragraph."
    assert not ALL.message.function.strict
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_tool_has_another_name_and_its_own_words() -> None:
    renamed = TOOLS["renamed"]
    assert not renamed.message.function.strict
    assert renamed.schema["properties"]["a"]["description"] == "its own words"
    assert json.loads(renamed.message.function.parameters_json) == renamed.schema


class Firm(Environment[None]):
    """Its tools are strict, but for one."""

    strict_tools = True

    @tool
    def held(self, a: str, b: int | None) -> str:
        """Hold."""
        return ""

    @tool(strict=False)
    def loose(self, a: str = "") -> str:
        """Let go."""
        return ""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


class Torn(Firm):
    @tool(strict=True)
    def loose(self, a: str = "") -> str:
        """Cannot be held."""
        return ""


def test_strict_is_what_the_author_asks_for() -> None:
    tools = Toolset(Firm())
    assert [one.message.function.strict for one in tools.values()] == [True, False]
    with pytest.raises(DefinitionError, match=r"Torn\.loose can't be strict\. .* required"):
        Toolset(Torn())


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Order:
    size: Size
    colours: list[Literal["red", "blue", "green"]]


class Choosy(Environment[None]):
    @tool
    def choose(
        self,
        unit: Literal["m", "km", "cm"],
        count: Literal[3, 1, 2],
        order: Order,
        maybe: Literal["b", "a", None] = None,
    ) -> str:
        """Choose."""
        return ""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


def test_choices_stand_as_written_with_their_type() -> None:
    schema = Toolset(Choosy())["choose"].schema
    properties = schema["properties"]
    assert properties["unit"] == {"enum": ["m", "km", "cm"], "type": "string"}
    assert properties["count"] == {"enum": [3, 1, 2], "type": "integer"}
    assert properties["maybe"]["enum"] == ["b", "a", None]
    assert properties["maybe"]["type"] == ["string", "null"]
    assert schema["$defs"]["Size"]["enum"] == ["s", "l"]
    colours = schema["$defs"]["Order"]["properties"]["colours"]["items"]
    assert colours == {"enum": ["red", "blue", "green"], "type": "string"}
    jsonschema.Draft202012Validator.check_schema(schema)


def _read(value: Any) -> dict[str, Any]:
    return read_arguments(json.dumps(value).encode(), ALL.arguments, ALL.schema, "t")


def test_arguments_are_converted() -> None:
    values = _read(GOOD)
    assert values["colour"] is Colour.BLUE
    assert values["point"] == Point(1.5)
    assert values["ratio"] == 1.0
    assert (values["many"], values["more"]) == (1, [])
    values["more"].append(1)
    assert _read(GOOD)["more"] == []


def test_whole_floats_count_as_integers() -> None:
    assert _read(GOOD | {"count": 2.0})["count"] == 2
    with pytest.raises(BadArguments, match="`count`"):
        _read(GOOD | {"count": 2.5})


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-3, 3).map(float)
    | st.sampled_from(["m", "km", "red", "blue", "", "1", "2.0"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyk"), inner),
    max_leaves=6,
)


@given(
    changes=st.dictionaries(
        st.sampled_from([*GOOD, "many", "more", "surplus"]), values, max_size=3
    ),
    removed=st.sets(st.sampled_from(list(GOOD)), max_size=1),
)
def test_what_the_schema_allows_is_taken_and_nothing_else(
    changes: dict[str, Any], removed: set[str]
) -> None:
    document = {key: value for key, value in (GOOD | changes).items() if key not in removed}
    allowed = jsonschema.Draft202012Validator(ALL.schema).is_valid(document)
    try:
        _read(document)
        taken = True
    except BadArguments:
        taken = False
    assert taken == allowed


@given(st.binary(max_size=60) | st.text().map(str.encode))
def test_any_bytes_are_bad_arguments_and_nothing_worse(raw: bytes) -> None:
    # Nothing that short is what the tool takes.
    with pytest.raises(BadArguments, match=r"Send a JSON object: \{\"a\": string"):
        read_arguments(raw, TOOLS["renamed"].arguments, TOOLS["renamed"].schema, "t")


class Simple(Environment[None]):
    """Tools whose arguments can be read in one step."""

    @tool
    def simple(
        self,
        text: Annotated[str, msgspec.Meta(max_length=3)] | None = None,
        count: int = 0,
        flag: bool = False,
        many: list[int | str | None] = [],  # noqa: B006  # the type copies it
    ) -> None:
        """Takes anything simple."""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


SIMPLE = Toolset(Simple())["simple"]
_PIECES = (
    *(b"\\u0061", b"\\ud83d\\ude00", b"\\ud800", b"\\n", b"\\", b"\\x", b"\\/", b"/", b"a", b'"'),
    *(
        b"\0",
        b"\x1f",
        b"\x7f",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc3\xa9",
        b"\xf0\x9f\x98\x80",
        b"\xc0\x80",
    ),
)
_VALUES = (
    *(b"1", b"-0", b"01", b"+1", b"1.0", b"1.5", b"1e2", b"1.", b".5", b"9" * 19, b"9" * 5000),
    *(b"-9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1e400"),
    *(b"true", b"false", b"null", b"NaN", b"Infinity", b'"abc"', b'"abcd"', b"{}", b"[", b""),
)
_SPACES = (b"", b"", b"", b" ", b"\n\t\r", b"\x0c", b"\0", b"\xef\xbb\xbf", b"//")
_simple_values = (
    st.sampled_from(_VALUES)
    | st.integers(-(2**65), 2**65).map(lambda number: str(number).encode())
    | st.lists(st.sampled_from(_PIECES), max_size=4).map(lambda part: b'"' + b"".join(part) + b'"')
)
_any_values = _simple_values | st.lists(_simple_values, max_size=3).map(
    lambda values: b"[" + b",".join(values) + b"]"
)
_keys = st.sampled_from((b"text", b"count", b"flag", b"many", b"\\u0074ext", b"other"))


@given(
    members=st.lists(st.tuples(_keys, st.sampled_from(_SPACES), _any_values), max_size=4),
    around=st.tuples(st.sampled_from(_SPACES), st.sampled_from(_SPACES)),
)
def test_whatever_the_model_wrote_is_read_or_refused(
    members: list[tuple[bytes, bytes, bytes]], around: tuple[bytes, bytes]
) -> None:
    object_ = b",".join(b'"' + key + b'":' + space + value for key, space, value in members)
    raw = b"{" + object_ + b"}"
    for written in (raw, raw.join(around)):
        with contextlib.suppress(BadArguments):
            read = read_arguments(written, SIMPLE.arguments, SIMPLE.schema, "t")
            assert set(read) == set(SIMPLE.arguments.__struct_fields__)


@pytest.mark.parametrize("name", ["count", "flag"])
def test_an_unpaired_surrogate_for_another_type_is_bad_arguments(name: str) -> None:
    raw = b'{"%s": "\\ud800"}' % name.encode()
    with pytest.raises(BadArguments, match=r"do not fit: .*Send a JSON object"):
        read_arguments(raw, SIMPLE.arguments, SIMPLE.schema, "t")


def test_deep_nesting_is_bad_arguments() -> None:
    raw = b'{"anything": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(BadArguments):
        read_arguments(raw, ALL.arguments, ALL.schema, "t")


names = st.text(string.ascii_lowercase, min_size=1, max_size=8)
texts = st.text(string.ascii_letters + " ", min_size=1).map(str.strip).filter(bool)


@given(summary=texts, described=st.dictionaries(names, texts, max_size=4))
def test_docstrings_are_read_back(summary: str, described: dict[str, str]) -> None:
    google = "\n".join([summary, "", "Args:", *(f"    {k}: {v}" for k, v in described.items())])
    fields = "\n".join([summary, "", *(f":param {k}: {v}" for k, v in described.items())])
    assert read_docstring(google) == (summary, described)
    assert read_docstring(fields) == (summary, described)
    assert read_docstring(None) == ("", {})


def test_sections_end_where_the_indent_does() -> None:
    text = """Do it.

    Args:
        a: first
            note: not an argument
        b (int): second

    More for the model.

    Raises:
        ToolError: not for the model
    """
    assert read_docstring(text) == (
        "Do it.\n\nMore for the model.",
        {"a": "first note: not an argument", "b": "second"},
    )


def _untyped(self: object, a) -> None:  # type: ignore[no-untyped-def]  # that is the mistake
    pass


def _stars(self: object, *many: int) -> None:
    pass


def _unwritable(self: object, a: object) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "hint"),
    [(_untyped, "'a' has no type"), (_stars, "'many' can't be passed by name"),
     (_unwritable, "can't be expressed as JSON Schema")],
)  # fmt: skip
def test_mistakes_of_the_author_are_one_sentence(function: Any, hint: str) -> None:
    with pytest.raises(DefinitionError, match=hint):
        arguments_schema(arguments_type(function, "Shop.add", {}), "Shop.add")


@pytest.mark.parametrize("name", ["open.door", "öffnen", "o" * 65, "open door"])
def test_names_that_endpoints_refuse_are_refused_at_the_start(name: str) -> None:
    class Odd(Environment[None]):
        """Has a tool with such a name."""

        @tool(name=name)
        def unlock(self) -> str:
            """Unlock it."""
            return ""

        def verify(self, session: Session[None], rollout: Rollout) -> float:
            return 0.0

    with pytest.raises(DefinitionError, match=r"Odd\.unlock: .* is not a valid tool name; .* 64"):
        Toolset(Odd())


def test_types_can_be_replaced_and_strays_are_named() -> None:
    held = {"renamed": {"a": Annotated[str, msgspec.Meta(pattern="^x$")]}}
    tools = Toolset(Many(), held)
    assert tools["renamed"].schema["properties"]["a"]["pattern"] == "^x$"
    with pytest.raises(BadArguments):
        read_arguments(b'{"a": "y", "point": []}', tools["renamed"].arguments, {}, "t")
    for bad, hint in (({"no": {}}, "no tool 'no'"), ({"renamed": {"b": int}}, "no parameter 'b'")):
        with pytest.raises(DefinitionError, match=hint):
            Toolset(Many(), bad)
