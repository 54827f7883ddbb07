"""Parameters of usual types: what the schema shows and what a call is given agree."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import jsonschema
import pydantic
import pytest

from gymmesh_resource import Environment, tool
from gymmesh_resource.tools import BadArguments, Toolset, answer_of, read_arguments


@dataclass
class Stop:
    city: str
    at: datetime.datetime | None = None


@dataclass
class Trip:
    stops: list[Stop] = field(default_factory=list)


class Seat(TypedDict):
    row: int


class Fare(pydantic.BaseModel):
    price: float
    currency: Literal["EUR", "USD"] = "EUR"


class Ticket(pydantic.BaseModel):
    fares: list[Fare]
    holder: str = pydantic.Field(min_length=1)


class Travel(Environment[None]):
    """Trips."""

    @tool
    def find(self, to: str = None, when: datetime.datetime = None) -> str:  # type: ignore[assignment]  # noqa: RUF013  # as many are written
        """Find one."""
        return ""

    @tool
    def plan(self, trip: Trip, seat: Seat | None = None) -> str:
        """Plan one."""
        return ""

    @tool
    def name(self, by_number: dict[int, str], at: datetime.time) -> str:
        """Name them."""
        return ""

    @tool
    def buy(self, ticket: Ticket, others: list[Fare] = []) -> str:  # noqa: B006  # copied
        """Buy one."""
        return ""

    def verify(self, session: Any, rollout: Any) -> float:
        return 0.0


TOOLS = Toolset(Travel())


def given(name: str, **arguments: Any) -> dict[str, Any]:
    one = TOOLS[name]
    return read_arguments(json.dumps(arguments).encode(), one.arguments, one.schema, name)


@pytest.mark.parametrize("name", list(TOOLS))
def test_schemas_are_whole(name: str) -> None:
    """Every reference leads somewhere, and every object with known keys has no others."""
    schema = json.loads(TOOLS[name].message.function.parameters_json)
    jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(schema)
    for reference in [part.split('"')[0] for part in text.split('"$ref": "#/$defs/')[1:]]:
        assert reference in schema["$defs"]
    assert text.count('"properties"') == text.count('"additionalProperties": false')


def test_null_is_taken_where_the_default_is_null() -> None:
    schema = TOOLS["find"].schema["properties"]
    assert schema["to"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert given("find", to=None, when=None) == {"to": None, "when": None}
    assert given("find", to="Bern")["to"] == "Bern"


def test_dates_have_their_format() -> None:
    assert TOOLS["find"].schema["properties"]["when"]["anyOf"][0]["format"] == "date-time"
    assert TOOLS["plan"].schema["$defs"]["Stop"]["properties"]["at"]["anyOf"][0] == {
        "type": "string",
        "format": "date-time",
    }
    assert TOOLS["name"].schema["properties"]["at"]["format"] == "time"
    when = given("find", when="2030-01-31T09:30:00")["when"]
    assert when == datetime.datetime(2030, 1, 31, 9, 30)  # none was written
    with pytest.raises(BadArguments, match="such as 2030-01-31T09:30:00"):
        given("find", when="tomorrow")


def test_keys_of_a_map_are_of_their_type() -> None:
    assert given("name", by_number={"1": "a"}, at="09:30:00")["by_number"] == {1: "a"}
    with pytest.raises(BadArguments, match="by_number"):
        given("name", by_number={"one": "a"}, at="09:30:00")


@pytest.mark.parametrize(
    ("name", "arguments", "place"),
    [
        ("plan", {"trip": {"stops": [{"city": "Bern", "zip": 3000}]}}, "trip.stops[0]"),
        ("plan", {"trip": {"stops": [], "car": 1}}, "trip"),
        ("plan", {"trip": {}, "seat": {"row": 1, "window": True}}, "seat"),
        ("buy", {"ticket": {"fares": [{"price": 1, "tax": 1}], "holder": "A"}}, "ticket.fares[0]"),
        ("buy", {"ticket": {"fares": [], "holder": "A"}, "others": [{"price": 1, "x": 1}]},
         "others[0]"),
    ],
)  # fmt: skip
def test_an_unknown_inner_key_is_told_to_the_model(
    name: str, arguments: dict[str, Any], place: str
) -> None:
    with pytest.raises(BadArguments) as refused:
        given(name, **arguments)
    assert f"unknown key in `{place}`; the known keys are: " in str(refused.value)


def test_pydantic_models_are_parameters_and_answers() -> None:
    assert given("plan", trip={"stops": [{"city": "Bern"}]})["trip"] == Trip([Stop("Bern")])
    ticket = given("buy", ticket={"fares": [{"price": 2.5}], "holder": "A"})["ticket"]
    assert ticket == Ticket(fares=[Fare(price=2.5)], holder="A")
    assert json.loads(answer_of(ticket.fares)) == [{"price": 2.5, "currency": "EUR"}]  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match=r"fares.0.currency: Input should be 'EUR' or 'USD'"):
        given("buy", ticket={"fares": [{"price": 1, "currency": "YEN"}], "holder": "A"})
