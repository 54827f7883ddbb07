"""The capacity model: docs/ideas/scaling.md shows what it computes, and it keeps to what was
measured.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.scale.report import read_section, table
from tests.scale.scaling import zone
from tests.scale.scaling.figures import Costs, Figures, _cell
from tests.scale.scaling.fits import RegistryCosts, calls_per_message
from tests.scale.scaling.model import LIMITS, Cluster, Layout, Model, most_machines
from tests.scale.scaling.page import held
from tests.scale.scaling.registry import restart
from tests.scale.scaling_sim import PAGE, PICTURE, made

#: How far a figure may be from what is predicted of it, as a factor. Where two virtual processors
#: are one real one for a while, the same work is charged up to twice.
FACTOR = 2.0


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures.load()


@pytest.fixture(scope="module")
def model(figures: Figures) -> Model:
    return Model.of(figures, Costs.of_page())


def test_the_page_shows_what_the_program_computes() -> None:
    sections, picture = made()
    for name, text in sections.items():
        assert read_section(name, PAGE) == text, f"make scaling ARGS=--write ({name})"
    assert PICTURE.read_text() == picture, "make scaling ARGS=--write"


def test_the_model_is_held_to_what_was_measured(figures: Figures, model: Model) -> None:
    found = held(figures, model)
    assert len(found) > 12
    for what, predicted, measured, _ in found:
        assert 1 / FACTOR < measured / predicted < FACTOR, what


def test_a_figure_is_found_by_its_row_and_column() -> None:
    text = table(["what", "here", "there"], [["a", "1.5 (2 ×)", "2"], ["b", "3,000", "–"]])
    assert _cell(text, "a", "here") == 1.5
    assert _cell(text, "b", 1) == 3000
    for row, column in (("c", "here"), ("a", "nowhere"), ("b", "there")):
        with pytest.raises(ValueError, match="has no figure in row"):
            _cell(text, row, column)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_where_it_is_said_to_be(model: Model, layout: Layout, limit: str) -> None:
    keeps = LIMITS[limit]
    most = most_machines(model, layout, keeps)
    if most is None:
        assert keeps(Cluster(model, layout, 1_000_000))
    else:
        assert keeps(Cluster(model, layout, most))
        assert not keeps(Cluster(model, layout, math.ceil(most * 1.05) + 1))


def test_zones_are_no_larger_for_more_of_them(model: Model) -> None:
    small, large = (Cluster(model, Layout.ZONES, count) for count in (1_000, 10_000))
    assert small.instances == large.instances
    assert small.rollout_ms == large.rollout_ms
    assert large.registries == 10 * small.registries
    assert (small.peers, small.scattering_ms) == (0, 0.0)


def test_calls_share_messages_less_with_more_peers() -> None:
    shared = [calls_per_message(peers, 1000.0, 100) for peers in (1, 10, 100, 10_000)]
    assert shared == sorted(shared, reverse=True)
    assert shared[-1] == pytest.approx(1.0, abs=0.01)


COSTS = RegistryCosts(
    renew=(100.0, 0.0), change=(200.0, 0.0, 20.0), snapshot=(1000.0, 1.0), instance_bytes=200.0,
    watcher_memory=(50.0, 0.0),
)  # fmt: skip


def test_a_registry_that_has_time_sends_each_watcher_each_change() -> None:
    found = restart(COSTS, 50, 50)
    assert found.given_up == 0
    assert found.seconds == pytest.approx(2.0, abs=0.5)
    # Between: all in the snapshots, and all as changes.
    assert 0 < found.sent_gb < 2 * 50 * 50 * 200 / 1e9


def test_a_registry_without_time_is_later_with_each_service() -> None:
    seconds = [restart(COSTS, many, many).seconds or math.inf for many in (100, 1_000, 5_000)]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 10 * seconds[0]
    # It could answer so few in the time that callers give it that they come again and again.
    slow = replace(COSTS, change=(200.0, 10.0, 20.0))
    found = restart(slow, 20_000, 20_000)
    assert found.seconds is None
    assert found.given_up > 0


BASE = zone.Course(3_000, 300, 60.0, 0.5, 3, 30.0)


def test_without_a_loss_a_run_takes_its_rounds() -> None:
    even = zone.run(replace(BASE, spread=0.0))
    assert (even.seconds, even.lost, even.wasted_s) == (600.0, 0, 0.0)
    assert zone.run(BASE).seconds == pytest.approx(600.0, rel=0.1)


@pytest.mark.parametrize("full", [False, True])
def test_each_attempt_of_a_lost_zone_is_made_again(full: bool) -> None:
    found = zone.run(replace(BASE, lost_at_s=200.0, full=full))
    assert found == zone.run(replace(BASE, lost_at_s=200.0, full=full))  # nothing is drawn
    assert found.lost == pytest.approx(100, abs=15)  # a third of what is in flight
    assert 0 < found.wasted_s < found.lost * 90.0
    whole = zone.run(BASE)
    # At least the lost work, over the places that are left.
    assert found.seconds > whole.seconds + (found.wasted_s / 300 if not full else 100.0)
