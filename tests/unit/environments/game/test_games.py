"""The rules of each game, its determinism, and what a game is worth."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import xor
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove
from gymmesh_resource.environments.game.code_breaker import CodeBreaker, marks
from gymmesh_resource.environments.game.connect_four import ConnectFour, has_four
from gymmesh_resource.environments.game.match import GAMES, Match
from gymmesh_resource.environments.game.nim import Nim
from gymmesh_resource.environments.game.sliding_puzzle import SlidingPuzzle
from gymmesh_resource.environments.game.tic_tac_toe import TicTacToe, value
from gymmesh_resource.environments.game.verdict import Scoring, Standing, judge, worth

# Refused by each game whatever its position: what no grammar takes, or no board has.
ILLEGAL = [
    (game, move)
    for game in GAMES
    for move in ("", "0", "resign", "-1", "1.5", "9999", "1e3", "²", "٥", "1 2 3 4 5 6 7 8 9 1 2",
                 "1;drop", "x" * 40, "१")
]  # fmt: skip


def started(kind: type[Game], level: int = 1, seed: int = 0, *, model_begins: bool = True) -> Game:
    game = kind(level, Random(seed), model_begins=model_begins)
    game.start()
    return game


def match(name: str, level: int = 1, seed: int = 0, **named: Any) -> Match:
    return Match(name, level, seed, **({"model_begins": None, "max_illegal": 3} | named))


@pytest.mark.parametrize(("name", "move"), ILLEGAL)
def test_illegal_moves_change_nothing(name: str, move: str) -> None:
    game = started(GAMES[name], 2)
    before = game.board(), game.chance.getstate()

    with pytest.raises(IllegalMove):
        game.play(move)

    assert (game.board(), game.chance.getstate()) == before
    assert game.result is None


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("name", list(GAMES))
def test_same_seed_same_game(name: str, level: int) -> None:
    boards = []
    for seed in (5, 5, 6, 7, 8, 9):
        played = match(name, level, seed)
        boards.append(played.opening("") + _play_on(played, Random(1)))

    assert boards[0] == boards[1]
    assert len(set(boards)) > 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", list(GAMES))
def test_every_game_ends(name: str, seed: int) -> None:
    played = match(name, 1 + seed % 3, seed)
    _play_on(played, Random(seed))

    assert played.over
    assert played.standing.ended_by in ("the rules", "the move limit")
    assert played.standing.illegal == 0


@pytest.mark.parametrize("seed", range(30))
def test_the_sliding_puzzle_can_be_solved(seed: int) -> None:
    game = started(SlidingPuzzle, 1, seed)
    solution = _search(game)

    assert 1 <= len(solution) <= 4
    for move in solution:
        assert game.result is None
        game.play(move)
    assert game.result is GameResult.WON
    assert game.progress() == 1.0


def test_progress_falls_back_with_the_tiles() -> None:
    game = started(SlidingPuzzle, 1, 3)
    assert game.progress() == 0.0
    moves = _search(game)
    game.play(moves[0])
    nearer = game.progress()
    game.play(moves[0])
    assert nearer > game.progress() == 0.0


@pytest.mark.parametrize(
    ("code", "guess", "found"),
    [
        ("1234", "1234", (4, 0)),
        ("1234", "4321", (0, 4)),
        ("1122", "2211", (0, 4)),
        ("1123", "1111", (2, 0)),
        ("1123", "2311", (0, 4)),
        ("1234", "5666", (0, 0)),
        ("1213", "1132", (1, 3)),
        ("111", "112", (2, 0)),
    ],
)
def test_marks(code: str, guess: str, found: tuple[int, int]) -> None:
    assert marks(code, guess) == found


@given(st.text("123", min_size=4, max_size=4), st.text("123", min_size=4, max_size=4))
def test_marks_do_not_depend_on_whose_code_it_is(one: str, other: str) -> None:
    assert marks(one, other) == marks(other, one)
    assert sum(marks(one, other)) <= 4


def test_the_code_is_found_by_elimination() -> None:
    game = started(CodeBreaker, 3, 11)
    assert game.board() == ""
    left = ["".join(code) for code in itertools.product("12345678", repeat=5)]
    while game.result is None:
        guess = left[0]
        game.play(guess)
        shown = game.board().splitlines()[-1]
        left = [c for c in left if f"{guess}: {marks(c, guess)[0]} + {marks(c, guess)[1]}" == shown]
    assert game.result is GameResult.WON


def test_a_code_is_told_only_at_the_end() -> None:
    game = started(CodeBreaker, 1, 2)
    wrong = next(c for c in ("111", "222") if marks(game._code, c) != (3, 0))  # type: ignore[attr-defined]
    said = [game.play(" ".join(wrong)) for _ in range(8)]

    assert game.result is GameResult.LOST
    assert game._code in said[-1]  # type: ignore[attr-defined]
    assert not any("it was" in one for one in said[:-1])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_perfect_nim_always_wins(level: int, seed: int, begins: bool) -> None:
    game = started(Nim, level, seed, model_begins=begins)
    while game.result is None:
        game.play(_perfect(game._piles))  # type: ignore[attr-defined]
    assert game.result is GameResult.WON


def test_the_strong_nim_player_punishes() -> None:
    lost = 0
    for seed in range(20):
        game = started(Nim, 3, seed)
        while game.result is None:
            piles = game._piles  # type: ignore[attr-defined]
            game.play(f"{1 + next(at for at, stones in enumerate(piles) if stones)} 1")
        lost += game.result is GameResult.LOST
    assert lost >= 15


def test_perfect_tic_tac_toe_is_a_draw() -> None:
    assert value("." * 9, "x") == 0
    for seed, begins in itertools.product(range(10), (True, False)):
        game = started(TicTacToe, 3, seed, model_begins=begins)
        while game.result is None:
            cells = game._cells  # type: ignore[attr-defined]
            best = min(
                (at for at in range(9) if cells[at] == "."),
                key=lambda at: value(cells[:at] + "x" + cells[at + 1 :], "o"),
            )
            game.play(str(best + 1))
        assert game.result is GameResult.DRAWN


def test_the_weak_tic_tac_toe_player_can_be_beaten() -> None:
    results = []
    for seed in range(20):
        game = started(TicTacToe, 1, seed)
        for move in ("5", "1", "9", "3", "7", "2", "8", "4", "6"):
            if game.result is None and move in game.legal():
                game.play(move)
        results.append(game.result)
    assert GameResult.WON in results


@pytest.mark.parametrize(
    ("cells", "four"),
    [
        ([(0, 0), (1, 0), (2, 0), (3, 0)], True),
        ([(3, 0), (4, 0), (5, 0), (6, 0)], True),
        ([(2, 2), (2, 3), (2, 4), (2, 5)], True),
        ([(0, 0), (1, 1), (2, 2), (3, 3)], True),
        ([(6, 0), (5, 1), (4, 2), (3, 3)], True),
        ([(0, 0), (1, 0), (2, 0), (4, 0)], False),
        ([(0, 3), (0, 4), (0, 5), (1, 0)], False),
        ([(0, 4), (0, 5), (1, 0), (1, 1)], False),
        ([(5, 5), (6, 0), (6, 1), (6, 2)], False),
        ([], False),
    ],
)
def test_four_in_a_line(cells: list[tuple[int, int]], four: bool) -> None:
    assert has_four(sum(1 << (column * 7 + row) for column, row in cells)) == four


def test_the_strong_connect_four_player_blocks_and_wins() -> None:
    lost = 0
    for seed in range(5):
        game = started(ConnectFour, 3, seed)
        for move in itertools.cycle("1111112222223333334444445555556666667777777"):
            if game.result is not None:
                break
            if move in game.legal().split(", "):
                game.play(move)
        lost += game.result is GameResult.LOST
    assert lost == 5


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize(
    ("model", "opponent", "told"),
    [
        ("1122", "555", "O plays 5. The opponent wins."),  # wins rather than blocks
        ("1233", "6677", "O plays 4."),  # 1 to 3 are the model's: it blocks at 4
    ],
)
def test_a_looking_opponent_wins_and_blocks(
    level: int, model: str, opponent: str, told: str
) -> None:
    game = started(ConnectFour, level, 0)
    assert isinstance(game, ConnectFour)
    game._loose = 0.0  # at level 2 it moves by chance now and then
    for column in model[:-1]:
        game._mine |= game._drop(int(column) - 1)
    for column in opponent:
        game._theirs |= game._drop(int(column) - 1)
    assert game.play(model[-1]) == told


def test_a_full_column_is_refused() -> None:
    game = started(ConnectFour, 1, 0)
    while "1" in game.legal().split(", "):
        game.play("1")
    assert game.result is None
    with pytest.raises(IllegalMove, match="full"):
        game.play("1")


def test_too_many_illegal_moves_lose() -> None:
    played = match("tic_tac_toe", model_begins=True, max_illegal=2)

    first = played.play("10", "")
    assert "Illegal moves left: 0" in first
    assert "Legal: 1, 2, 3" in first
    assert not played.over
    assert "you lose" in played.play(None, "no move was found")
    assert played.standing == Standing(GameResult.LOST, 0.0, 0, 2, "illegal moves")


def test_the_move_limit_loses() -> None:
    played = match("sliding_puzzle", 1, 3)
    back_and_forth = played.game.legal().split(", ")[0]
    while not played.over:
        played.play(back_and_forth, "")
    assert played.standing.ended_by == "the move limit"
    assert played.standing.moves == played.game.max_moves == 20


@pytest.mark.parametrize(
    ("standing", "scoring", "reward"),
    [
        (Standing(), Scoring(), 0.0),
        (Standing(GameResult.WON, 1.0), Scoring(), 1.0),
        (Standing(GameResult.WON, 1.0, illegal=2), Scoring(), 1.0),
        (Standing(GameResult.WON, 1.0, illegal=2), Scoring(illegal=0.1), 0.8),
        (Standing(GameResult.WON, 1.0, illegal=50), Scoring(illegal=0.1), 0.0),
        (Standing(GameResult.DRAWN), Scoring(), 0.5),
        (Standing(GameResult.DRAWN), Scoring(draw=0.0), 0.0),
        (Standing(GameResult.LOST, 0.5), Scoring(), 0.0),
        (Standing(GameResult.LOST, 0.5), Scoring(progress=0.4), 0.2),
        (Standing(None, 0.5), Scoring(progress=0.4), 0.2),
        (Standing(None, 0.5, illegal=1), Scoring(progress=0.4, illegal=0.3), 0.0),
        (Standing(GameResult.WON, 0.0), Scoring(progress=0.4), 1.0),
    ],
)
def test_worth(standing: Standing, scoring: Scoring, reward: float) -> None:
    assert worth(standing, scoring) == pytest.approx(reward)
    assert judge(standing, scoring).reward == worth(standing, scoring)


def _play_on(played: Match, chance: Random) -> str:
    """Play legal moves by chance until the end; all that was said."""
    said = []
    for _ in range(200):
        if played.over:
            break
        said.append(played.play(_any_legal(played.game, chance), ""))
    return "\n".join(said)


def _any_legal(game: Game, chance: Random) -> str:
    if isinstance(game, Nim):
        pile = chance.choice([at for at, stones in enumerate(game._piles, 1) if stones])
        return f"{pile} {chance.randint(1, game._piles[pile - 1])}"
    if isinstance(game, CodeBreaker):
        return "".join(chance.choice(game._digits) for _ in range(game._length))
    return chance.choice(game.legal().split(", "))


def _perfect(piles: list[int]) -> str:
    total = reduce(xor, piles)
    return next(
        f"{at} {stones - (stones ^ total)}"
        for at, stones in enumerate(piles, 1)
        if stones ^ total < stones
    )


def _search(game: Game) -> list[str]:
    """A shortest solution of a small sliding puzzle, by breadth."""
    start = tuple(map(int, game.board().replace("_", "0").split()))
    goal = (1, 2, 3, 4, 5, 6, 7, 8, 0)
    front: list[tuple[tuple[int, ...], list[str]]] = [(start, [])]
    while front:
        following = []
        for tiles, moves in front:
            if tiles == goal:
                return moves
            gap = tiles.index(0)
            for at in range(9):
                if abs(at // 3 - gap // 3) + abs(at % 3 - gap % 3) == 1:
                    slid = list(tiles)
                    slid[gap], slid[at] = slid[at], 0
                    following.append((tuple(slid), [*moves, str(tiles[at])]))
        front = following
    raise AssertionError("no solution")
