"""Games that a model plays turn by turn.

Task rows have `game` (a name of `GAMES`). `level` (1 to 3) and `first` (who makes the first move
against an opponent) are optional. The session's seed decides every random choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict
from gymmesh_resource.environment import Turn
from gymmesh_resource.environments.game.answer import LONGEST, find_move
from gymmesh_resource.environments.game.base import LEVELS
from gymmesh_resource.environments.game.match import GAMES, Match
from gymmesh_resource.environments.game.verdict import Scoring, judge, worth
from gymmesh_resource.rollout import Transcript

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_BEGINS = {"model": True, "opponent": False}
_MOVE_TOOL = {
    "type": "function",
    "name": "move",
    "description": "Make your move; tells what happened and shows the position.",
    "parameters": {
        "type": "object",
        "properties": {"move": {"type": "string", "description": "the move as the rules say it"}},
        "required": ["move"],
        "additionalProperties": False,
    },
    "strict": True,
}


class GameEnvironment(Environment[Match]):
    """Puzzles, and games against a program that plays partly at random.

    The reward is 1.0 if the model wins. The rewards of the turns add up to the reward.
    """

    version = "1"
    keep_state = False  # a game is an object of its own kind, which JSON cannot hold
    examples = "tasks.jsonl"
    reward_rule = resource_pb2.REWARD_RULE_INCLUDED

    def __init__(
        self,
        *,
        moves_by: Literal["text", "tool"] = "text",
        max_illegal: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3,
        draw_reward: _Share = 0.5,
        progress_reward: _Share = 0.0,
        illegal_penalty: _Share = 0.0,
    ) -> None:
        """Options.

        moves_by: whether the model writes its moves (`text`), or calls the tool `move`.
        max_illegal: after this number of illegal moves, the model loses the game.
        draw_reward: the reward of a draw.
        progress_reward: the largest reward of an unsolved puzzle.
        illegal_penalty: the cost of each illegal move.
        """
        self._by_tool = moves_by == "tool"
        self._max_illegal = max_illegal
        self._scoring = Scoring(draw_reward, progress_reward, illegal_penalty)

    def check_task(self, task: Task) -> None:
        """The row must name a game. The level and the side that begins are optional."""
        name = task.require("game", str)
        if name not in GAMES:
            raise TaskInvalid("game", f"is {name[:40]!r}; the games are {', '.join(GAMES)}")
        if _level(task) not in LEVELS:
            raise TaskInvalid("level", "must be 1, 2 or 3")
        first = task.payload.get("first")
        if first is not None and (not isinstance(first, str) or first not in _BEGINS):
            raise TaskInvalid(
                "first", 'must be "model" or "opponent"; omit the key to let chance decide'
            )

    def create_state(self, task: Task, seed: int) -> Match:
        """The game of this seed."""
        return Match(
            task.payload["game"],
            _level(task),
            seed,
            model_begins=_BEGINS.get(task.payload.get("first") or ""),
            max_illegal=self._max_illegal,
        )

    def opening(self, session: Session[Match]) -> str:
        """The rules and the first position."""
        example = session.state.game.example
        if self._by_tool:
            how = f'Make each move by calling the tool move, such as {{"move": "{example}"}}.'
        else:
            how = f"End each answer with one move in tags, such as <move>{example}</move>."
        return session.state.opening(how)

    def next_turn(self, session: Session[Match], new: Transcript) -> Turn:
        """Make the move that the answer ends with."""
        before = worth(session.state.standing, self._scoring)
        if self._by_tool:
            said = session.state.play(None, "call the tool move instead of writing")
        else:
            missing = f"no move was found; write <move>{session.state.game.example}</move>"
            said = session.state.play(find_move(new.answer), missing)
        gained = worth(session.state.standing, self._scoring) - before
        return Turn(said, reward=gained, done=session.state.over)

    def session_tools(self, session: Session[Match]) -> Sequence[dict[str, Any]]:
        """The tool `move`, with `moves_by: tool`."""
        return [_MOVE_TOOL] if self._by_tool else []

    def call_other(self, session: Session[Match], name: str, arguments: dict[str, Any]) -> str:
        """Make the move that is the tool's argument."""
        if not self._by_tool or name != "move":
            raise ToolError(f"There is no tool {name[:LONGEST]!r} in this game.")
        if session.state.over:
            raise ToolError("The game is over.")
        move = arguments.get("move")
        text = str(move) if isinstance(move, str | int) else ""
        said = session.state.play(find_move(text), "the argument move has no move")
        if session.state.over:
            session.finish()
        return said

    def verify(self, session: Session[Match], rollout: Rollout) -> Verdict:
        """The verdict on the current state of the game."""
        return judge(session.state.standing, self._scoring)


def _level(task: Task) -> int:
    level = task.payload.get("level", 1)
    return level if isinstance(level, int) and not isinstance(level, bool) else 0
