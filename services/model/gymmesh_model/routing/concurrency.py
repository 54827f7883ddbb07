"""Decides how many concurrent calls an endpoint gets: a pure state machine; its caller passes the
time.

It searches for the width (the number of concurrent calls) at which the endpoint answers most calls:

- **A single refusal changes nothing.** The call waits and is sent again. The width falls only if
  more than `TOLERATED` of the calls are refused: to the number of calls that the endpoint processed
  while it refused others, and at most by half. Refusals are summed against the tolerated share (a
  CUSUM test). So about ten refusals reveal a full endpoint, and chance hardly ever triggers the
  test.
- **Widths that worked are safe.** A width at which a round of calls was answered is safe. After
  trouble the width returns to it, by half of the difference with each round trip.
- **Larger widths are tried after a pause**, one step with each successful round. The pause depends
  on the cost of the last trouble and on the possible gain, and grows if the same trouble recurs. So
  an endpoint that recovers slowly is not overloaded again and again.
- **A full endpoint is shared.** A client that fills it is hardly ever refused, and other clients
  find no room. So the controller reduces the width for a moment now and then.
- **A fall that costs answers is undone.** Some endpoints refuse a share of the calls at any width.
  Then fewer calls are answered after a fall, and as many are refused: the width returns, and that
  share is tolerated for a while.

Metrics that show overload reduce the width by the factor `backoff`. Calls that began before a fall
do not count, since they say nothing about the current width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

TOLERATED: Final = 0.12
"""Up to this share of refused calls, the limit of concurrent calls stays as it is."""

# Refusals beyond the tolerated share that are not due to chance.
_ALARM: Final = 8.0
_MOST_TOLERATED: Final = 0.6
# The share of refusals from which the width does not rise above what is known to be safe.
_MISSES: Final = 0.08
# The least answers that a rate, and a share of refusals, is computed from.
_ENOUGH: Final = 40
_SOME: Final = 10
# At a width this many times smaller, fewer calls are refused if the width is the cause.
_SEVERAL: Final = 3.0
# After this many rounds at a full endpoint, this part of the width is given up.
_ROUNDS: Final = 20
_GIVES: Final = 0.25
# An endpoint is full that refuses a call while it has less than this part of the width in hand.
_FULL: Final = 0.75
_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 300.0
_TOLERATES_S: Final = 120.0


@dataclass(slots=True)
class _Round:
    """The results of the calls that began since the width last fell, at `since`.

    first: when one of them was first answered.
    refused: how many were refused since then.
    same, missed: how many were answered and refused of those that began at the width in force,
        which was set at `same_since`.
    """

    since: float = float("-inf")
    first: float = 0.0
    answered: int = 0
    refused: int = 0
    same_since: float = float("-inf")
    same: int = 0
    missed: int = 0

    def rate(self, now: float) -> float | None:
        """Answers a second; None as long as there are too few."""
        if self.answered < _ENOUGH or now <= self.first:
            return None
        return (self.answered - 1) / (now - self.first)

    @property
    def share(self) -> float:
        """The share of refusals among the calls."""
        calls = self.answered + self.refused
        return self.refused / calls if calls else 0.0


@dataclass(slots=True)
class _Refusals:
    """The refusals behind the alarm.

    since: when the first of them came.

    in_hand: the calls that the endpoint had in hand, added up over them.
    takes: whether it answered a call that began after the first of them.
    """

    since: float = float("inf")
    count: int = 0
    in_hand: int = 0
    takes: bool = False


@dataclass(frozen=True, slots=True)
class _Fall:
    """The width, the answers a second and the share of refusals before a fall."""

    width: float
    rate: float
    share: float


@dataclass(slots=True)
class AdaptiveWidth:
    """The width of one endpoint, in calls; a fraction, since several may share a whole number.

    cap: never above, and where it starts. floor: never below. backoff: what an overload seen in
    metrics leaves, between 0 and 1. step: the least that a round trip adds. Times are seconds on
    one monotonic clock. width: what is in force. held: whether it must not rise.
    """

    cap: float
    floor: float = 1.0
    backoff: float = 0.7
    step: float = 1.0
    width: float = -1.0
    held: bool = False
    _safe: float = 0.0
    _proven: bool = False  # whether a round at the safe width went well since the last trouble
    _trouble: float = 0.0  # the width at which the last one began
    _began: float | None = None  # when the trouble began that is not over
    _before: float = 0.0  # the width at which the trouble before that one began
    _longest: float = 1.0
    _resumes: float = float("-inf")  # when more than the safe width may be tried
    _alarm: float = 0.0
    _tolerated: float = TOLERATED
    _tolerated_until: float = float("-inf")
    _round: _Round = field(default_factory=_Round)
    _refusals: _Refusals = field(default_factory=_Refusals)
    _fall: _Fall | None = None
    _answers: int = 0  # since room was last given, or was to be
    _in_hand: float = float("inf")  # the fewest calls that it had when it refused one meanwhile
    _first: _Fall | None = None  # the first of those falls since which it has not come back

    def __post_init__(self) -> None:
        self.floor = min(self.floor, self.cap)
        if self.width < 0:
            self.width = self.cap

    def succeeded(self, started: float, waiting: bool, now: float) -> bool:
        """A call that began at `started` was answered; True when the width changed.

        waiting: whether calls wait for a place, without which more places would change nothing.
        """
        turn = self._round
        if started < turn.since:
            return False
        if not turn.answered:
            turn.first, turn.refused = now, 0
        turn.answered += 1
        self._answers += 1
        turn.same += started >= turn.same_since
        if self._alarm:
            self._alarm = max(0.0, self._alarm - self._tolerated)
            self._refusals.takes = self._refusals.takes or started > self._refusals.since
        if self._fall is not None and self._took_back(self._fall, now):
            return True
        well = turn.same >= self.width
        if well:
            self._went_well(now)
        if not waiting or self.held:
            return False
        if well and self._gives_room(now):
            return True
        if self.width >= self.cap:
            return False
        return self._rise(now, well)

    def refused(self, started: float, in_hand: int, now: float) -> bool:
        """A call that began at `started` was refused; True when the width changed.

        in_hand: the other calls that the endpoint has.
        """
        turn = self._round
        if started < turn.since:
            return False
        if now > self._tolerated_until:
            self._tolerated = TOLERATED
        self._in_hand = min(self._in_hand, in_hand)
        turn.refused += 1
        turn.missed += started >= turn.same_since
        if not self._alarm:
            self._refusals = _Refusals(now)
        found = self._refusals
        found.count += 1
        found.in_hand += in_hand
        self._alarm += 1.0 - self._tolerated
        # What it has in hand it will answer, for all that is known.
        if self._alarm < _ALARM + self._tolerated * in_hand:
            return False
        before = self.width
        self._fell(max(found.in_hand / found.count, self.width / 2), now)
        return self.width != before

    def overloaded(self, asked: float, now: float) -> bool:
        """Metrics that were asked for at `asked` show overload; True when the width fell."""
        before = self.width
        if asked >= self._round.since:
            self._fell(self.width * self.backoff, now)
        return self.width < before

    def hold(self, held: bool) -> None:
        """Whether the endpoint is so full that the width must not rise."""
        self.held = held

    def _fell(self, width: float, now: float) -> None:
        """Takes the width down to `width`, where it is above."""
        turn, before = self._round, self.width
        width = max(self.floor, min(width, before))
        rate = turn.rate(now)
        if self._first is None or before >= self._first.width:
            known = turn.answered >= _SOME
            self._first = _Fall(before, 0.0, turn.share) if known else None
        elif self._makes_no_difference(self._first):
            self._go_back(self._first, now)
            return
        if rate is not None and (self._fall is None or rate >= self._fall.rate):
            self._fall = _Fall(before, rate, turn.share)
        if self._refusals.takes and self._alarm:
            # It has these while it refuses others: nothing is lost.
            self._safe, self._proven = max(1.0, width), False
            self._resumes, self._began = now + _PAUSE_S, None
            self._trouble = before
        elif self._began is None:
            self._began, self._trouble = now, before
            if not self._safe:
                self._safe = before / 2
        elif turn.answered >= before / 2:
            # It had recovered up to here. What was proven gets a second chance, a step below.
            self._began, self._trouble = now, before
            less = before - self.step if self._proven else 0.75 * before
            self._safe, self._proven = max(1.0, min(self._safe, less)), False
        self._alarm = 0.0
        self._change(width, now)

    def _took_back(self, fall: _Fall, now: float) -> bool:
        """Takes back a fall that cost answers and spared no refusals; True when it did."""
        turn, rate = self._round, self._round.rate(now)
        if self.width >= fall.width:
            self._fall = None
            return False
        if rate is None or turn.answered < self.width or turn.share < 0.75 * fall.share:
            return False
        if rate >= fall.rate * (1 + self.width / fall.width) / 2:
            return False
        self._go_back(fall, now)
        return True

    def _makes_no_difference(self, first: _Fall) -> bool:
        """Whether the share of refusals is as high as it was at several times the width."""
        turn = self._round
        fell = self.width <= first.width / _SEVERAL
        return fell and turn.answered >= _SOME and turn.share >= 0.75 * first.share

    def _go_back(self, fall: _Fall, now: float) -> None:
        """Returns to the width before a fall, and tolerates the share that is refused at any
        width.
        """
        self._tolerated = min(_MOST_TOLERATED, 1.25 * max(fall.share, self._round.share))
        self._tolerated_until = now + _TOLERATES_S
        self._safe, self._proven, self._resumes = fall.width, False, now
        self._began = self._fall = self._first = None
        self._alarm = 0.0
        self._change(fall.width, now)

    def _went_well(self, now: float) -> None:
        """A round of calls was answered at the width in force."""
        if self._began is not None and self.width >= self._safe:
            self._resumes = now + self._pause_after(now - self._began)
            self._began = None
        if self.width >= self._safe:
            self._safe, self._proven = self.width, True

    def _gives_room(self, now: float) -> bool:
        """Gives up a part of the width now and then, which returns while nobody takes it."""
        if self._answers < _ROUNDS * self.width or self.width < max(2.0, self._safe):
            return False
        in_hand, self._in_hand, self._answers = self._in_hand, float("inf"), 0
        is_full = self.width < self.cap or in_hand < _FULL * self.width
        if not is_full or self._began is not None or now <= self._tolerated_until:
            return False
        before = self.width
        self.width = max(self.floor, min(before, max(1.0, in_hand)) * (1 - _GIVES))
        if self.width == before:
            return False
        turn = self._round
        turn.same_since, turn.same, turn.missed = now, 0, 0
        return True

    def _pause_after(self, cost: float) -> float:
        """Seconds until more is tried, after trouble that cost so many seconds.

        The less there is to gain the longer; longer still where it is the same trouble again.
        """
        again = abs(self._trouble - self._before) <= 0.1 * self._trouble
        self._longest = min(2 * self._longest, 16.0) if again else 1.0
        self._before = self._trouble
        # Trouble at a width that is safe now came from the recovery: nothing is known of more.
        gain = self._trouble / self._safe - 1.0 if self._trouble > self._safe else 1.0
        gain = max(gain, 0.01)
        pause = min(2 * cost / gain, 10 * self._longest * cost, _LONGEST_PAUSE_S)
        return max(_PAUSE_S, pause)

    def _rise(self, now: float, well: bool) -> bool:
        """Adds what one answer adds to the width; True when it rose.

        well: whether a round at this width has just gone well.
        """
        before = self.width
        if before < self._safe:
            a_round = max(self.step, (self._safe - before) / 2)
            self.width = min(self.cap, self._safe, before + a_round / max(before, 1.0))
        elif well and now >= self._resumes and not self._misses():
            self.width = min(self.cap, self._next(before))
        if int(self.width) > int(before) or well:
            turn = self._round
            turn.same_since, turn.same, turn.missed = now, 0, 0
        return self.width > before

    def _next(self, width: float) -> float:
        """The width to try above one that is safe: a step more, or the whole number between it and
        the width at which the last trouble began.
        """
        more = width + max(self.step, width - self._trouble)
        whole = int(width) + 1
        return float(whole) if width < whole < int(self._trouble) <= more else more

    def _misses(self) -> bool:
        """Whether too many calls are refused at this width to try a larger one."""
        turn = self._round
        most = _MISSES if self._tolerated <= TOLERATED else self._tolerated
        return turn.missed > most * (turn.same + turn.missed)

    def _change(self, width: float, now: float) -> None:
        self.width = width
        self._round = _Round(now)
