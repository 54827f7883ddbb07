"""A compact picture shows what the picture that it was made from shows, in far fewer bytes."""

from __future__ import annotations

import re
from io import StringIO
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from deploy.observe.compact_svg import compact, relative
from deploy.observe.picture import _STYLE

SVG = "{http://www.w3.org/2000/svg}"
TENTH = 0.1


@pytest.fixture(scope="module")
def picture() -> str:
    """Lines, areas, a heat map and text, as matplotlib writes them."""
    values = [((7 * at) % 23) / 3 for at in range(200)]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6, 6))
        lines, areas, map_ = figure.subplots(3)
        lines.plot(values, label="a line & its <name>")
        lines.legend()
        areas.stackplot(range(200), values, values[::-1])
        areas.set_ylabel("turned")
        map_.pcolormesh([values, values[::-1]], rasterized=True)
        written = StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def test_it_is_less_than_half_as_large(picture: str) -> None:
    small = compact(picture)
    assert len(small) < len(picture) / 2
    assert small.count("\n") < picture.count("\n") / 5


def test_every_element_is_where_it_was_and_looks_the_same(picture: str) -> None:
    before = list(ElementTree.fromstring(picture).iter())
    after = list(ElementTree.fromstring(compact(picture)).iter())
    (sheet,) = (one.text or "" for one in after if one.tag == f"{SVG}style")
    styles = dict(re.findall(r"^\.(s\d+)\{(.*)\}$", sheet, re.MULTILINE))
    assert [one.tag for one in after] == [one.tag for one in before]
    for old, new in zip(before, after, strict=True):
        assert styles.get(new.get("class", "")) == old.get("style")
        assert new.get("clip-path") == old.get("clip-path")
        if new.tag == f"{SVG}path":
            assert points(new.get("d", "")) == pytest.approx(points(old.get("d", "")), abs=TENTH)
        if new.tag == f"{SVG}text":
            assert new.text == old.text
            place = [float(one.get(key, "nan")) for one in (old, new) for key in ("x", "y")]
            assert place[2:] == pytest.approx(place[:2], abs=TENTH)
        if new.tag == f"{SVG}image":
            assert new.attrib == {key: old.attrib[key] for key in new.attrib}
    turned = [one for one in after if one.text == "turned"]
    assert [one.get("transform", "")[:11] for one in turned] == ["rotate(-90 "]


def test_what_is_referred_to_is_there(picture: str) -> None:
    small = compact(picture)
    referred = set(re.findall(r"url\(#([^)]+)\)", small))
    assert referred
    assert referred <= set(re.findall(r'id="([^"]+)"', small))


def test_rounding_does_not_add_up() -> None:
    path = "M 0 0 " + " ".join(f"L {at * 0.3333} {-at * 0.3333}" for at in range(1, 3000)) + " z"
    found = points(relative(path))
    assert found[-2:] == pytest.approx([2999 * 0.3333, -2999 * 0.3333], abs=TENTH)
    assert relative("M 1 2 \nL 3.04 -4 \nz\nM 5 5 \nL 5 6 \n") == "M1 2l2 -6zM5 5l0 1"


def points(path: str) -> list[float]:
    """The absolute coordinates of a path, one after another."""
    found: list[float] = []
    numbers = re.compile(r"-?[\d.]+(?:e-?\d+)?")
    for kind, rest in re.findall(r"([MLlCQ])([^MLlCQz]*)", path):
        values = [float(one) for one in numbers.findall(rest)]
        if kind == "l":
            values = [found[-2] + values[0], found[-1] + values[1]]
        found += values
    return found
