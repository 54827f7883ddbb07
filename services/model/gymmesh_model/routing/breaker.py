"""Decides when an endpoint gets no calls: two pure state machines; the caller passes the time.

- `Breaker`: after a number of failures in a row the circuit is open, and calls fail at once instead
  of each trying the endpoint. From time to time one call passes as a probe. The first success
  closes the circuit.
- `RetryBudget`: a token bucket. Retries may add at most a fixed share to the calls, so that they
  don't overload an endpoint in trouble.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Breaker:
    """The circuit of one endpoint.

    threshold: how many failures in a row open the circuit. cooldown_s: seconds until the first
    probe. The pause before each later probe is longer by the factor `growth`, up to `longest_s`.
    failures: the current number of failures in a row. is_open: whether only probes pass. Times
    given to the methods are seconds on one monotonic clock.
    """

    threshold: int = 20
    cooldown_s: float = 1.0
    growth: float = 1.0
    longest_s: float = 15.0
    failures: int = 0
    is_open: bool = False
    _next_probe: float = 0.0
    _probes: int = 0

    def wait(self, now: float) -> float:
        """Seconds until a call would be let through; 0.0 when one is. Changes nothing."""
        return max(0.0, self._next_probe - now) if self.is_open else 0.0

    def admit(self, now: float) -> float | None:
        """None lets a call through; else the seconds until the next one may probe.

        A probe needs no ending of its own: if it is never heard of again, the next one goes out
        after the cooldown all the same.
        """
        if left := self.wait(now):
            return left
        if self.is_open:
            self._probes += 1
            # So many doublings are more than any pause can have.
            grown = self.cooldown_s * self.growth ** min(self._probes, 60)
            longest = max(self.cooldown_s, self.longest_s)
            self._next_probe = now + min(grown, longest)
        return None

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures >= self.threshold and not self.is_open:
            self.is_open = True
            self._next_probe = now + self.cooldown_s

    def answered(self) -> bool:
        """The endpoint answered, even if with a refusal. Returns whether the circuit closed."""
        was_open = self.is_open
        self.failures = self._probes = 0
        self.is_open = False
        return was_open


@dataclass(slots=True)
class RetryBudget:
    """Tokens for retries: every call brings `share` of one, every retry takes one.

    capacity: tokens kept at most, and there at the start.
    """

    share: float = 0.2
    capacity: float = 100.0
    _tokens: float = -1.0

    def __post_init__(self) -> None:
        self._tokens = self.capacity

    def called(self) -> None:
        if self._tokens < self.capacity:
            self._tokens = min(self.capacity, self._tokens + self.share)

    def take(self) -> bool:
        """Takes a token for one retry; False when there is none."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
