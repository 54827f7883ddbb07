"""Code breaker: a hidden row of digits is found by guesses that are marked."""

from __future__ import annotations

from collections import Counter

from gymmesh_resource.environments.game.base import Game, GameResult, IllegalMove

# Length of the code, its digits, and the guesses there are, by level.
_LEVELS = {1: (3, "1234", 8), 2: (4, "123456", 10), 3: (5, "12345678", 12)}


def marks(code: str, guess: str) -> tuple[int, int]:
    """Digits at their place, and digits of the code at another place, each counted once."""
    exact = sum(one == other for one, other in zip(code, guess, strict=True))
    common = sum((Counter(code) & Counter(guess)).values())
    return exact, common - exact


class CodeBreaker(Game):
    """The code stays hidden until the model finds it or has no guess left."""

    rules = (
        "Code breaker. Find the hidden code. After each guess you are told how many digits are "
        "right and at their place, and how many others are in the code at another place. "
        "Digits may repeat."
    )
    example = "1123"

    def start(self) -> str:
        self._length, self._digits, self.max_moves = _LEVELS[self.level]
        self._guesses: list[tuple[str, int, int]] = []
        self._code = "".join(self.chance.choice(self._digits) for _ in range(self._length))
        return f"You have {self.max_moves} guesses."

    def play(self, move: str) -> str:
        guess = move.replace(" ", "").replace(",", "").replace("-", "")
        if len(guess) != self._length or any(digit not in self._digits for digit in guess):
            raise IllegalMove(f"a guess is {self.legal()}")
        exact, near = marks(self._code, guess)
        self._guesses.append((guess, exact, near))
        if exact == self._length:
            self.result = GameResult.WON
            return "That is the code."
        left = self.max_moves - len(self._guesses)
        if not left:
            self.result = GameResult.LOST
            return (
                f"{exact} at their place, {near} elsewhere. No guess is left: it was {self._code}."
            )
        return f"{exact} at their place, {near} elsewhere. Guesses left: {left}."

    def board(self) -> str:
        return "\n".join(f"{guess}: {exact} + {near}" for guess, exact, near in self._guesses)

    def legal(self) -> str:
        return f"{self._length} digits from {self._digits[0]} to {self._digits[-1]}"

    def progress(self) -> float:
        """The share of digits at their place in the best guess."""
        return max((exact for _, exact, _ in self._guesses), default=0) / self._length
