"""Runs a task's own test code, in a sandbox without the candidate. It imports only frames.

The candidate is a function that asks the service, which asks the candidate's sandbox. Only plain
data returns, so the candidate can't manipulate the test's comparisons.

The order has `helpers` (source text), `test` (source text that defines `check`) and `entry`.
Calls are sent as tests for the driver, and answered as the driver answers. The last frame says that
the test passed, that it failed, or that it cannot be used.
"""

from __future__ import annotations

import builtins
import json
import sys

TYPE_CHECKING = False  # importing typing takes longer than all of the rest
if TYPE_CHECKING:
    from typing import Any

    from gymmesh_resource.environments.code import frames
else:
    sys.path.insert(0, __file__.rpartition("/")[0])
    import frames

# Far from what overflows the stack of the parser, which is not written in Python.
_DEPTH = 5000


class CandidateError(Exception):
    """An error of the candidate that test code must not treat as its own error."""


class NotPlain(BaseException):
    """The test passes a value to the candidate that cannot be sent."""


# Raised inside a lazy `map` or `zip`, these end it as if there were no more values.
_END_A_LOOP = (StopIteration, StopAsyncIteration)


def error_of(answer: Any) -> Exception:
    """The candidate's error: the built-in exception of that name, if there is one."""
    text = str(answer.get("error"))
    kind = getattr(builtins, str(answer.get("type")), None)
    plain = isinstance(kind, type) and issubclass(kind, Exception)
    if plain and not issubclass(kind, _END_A_LOOP):  # type: ignore[arg-type]  # it is a class
        try:
            return kind(text)  # type: ignore[misc,no-any-return]  # it is a class
        except TypeError:
            pass  # one that is made of more than a text
    return CandidateError(text)


class Candidate:
    """The function under test, as the test code sees it."""

    def __init__(self, channel: frames.Channel) -> None:
        self._channel = channel
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The candidate's value, or its error."""
        test = {
            "args": [frames.encode(part, _other) for part in args],
            "kwargs": {name: frames.encode(part, _other) for name, part in kwargs.items()},
        }
        self.calls += 1
        self._channel.write(frames.TEST, json.dumps(test).encode())
        given = self._channel.read()
        if given is None:
            raise SystemExit
        try:
            answer = json.loads(given[1])
            if "value" in answer:
                return frames.decode(answer["value"])
            error = error_of(answer)
        except Exception:  # candidates choose what is read here, and thus how that fails
            error = CandidateError("the value cannot be read")
        raise error


def _other(value: Any) -> Any:
    if isinstance(value, frames.Opaque):  # the candidate's own, from an earlier call
        return frames.type_only(value)
    raise NotPlain(
        f"the test passes a value of type {type(value).__name__}, which is not plain data"
    )


def main() -> None:
    """Run the test of the order."""
    channel = frames.open_channel()
    order = channel.order()
    sys.setrecursionlimit(_DEPTH)
    sys.set_int_max_str_digits(50_000)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    space: dict[str, Any] = {"__name__": "test", "__builtins__": builtins}
    candidate = Candidate(channel)
    try:
        for name in ("helpers", "test"):
            exec(compile(order[name], f"<{name}>", "exec", dont_inherit=True), space)  # noqa: S102  # it is the task's
        space[order["entry"]] = candidate
        check = space["check"]
    except BaseException as error:
        channel.write(frames.UNUSABLE, frames.as_bytes(f"does not run: {frames.said(error)}"))
        return
    channel.write(frames.READY)
    try:
        check(candidate)
    except NotPlain as error:
        channel.write(frames.UNUSABLE, frames.as_bytes(f"cannot be used: {error}"))
    except BaseException as error:
        channel.write(frames.FAILED, frames.as_bytes(f"wrong answer\n{frames.said(error)}"))
    else:
        if candidate.calls:
            channel.write(frames.PASSED)
        else:
            channel.write(
                frames.UNUSABLE, b"passes without calling the function: nothing is tested"
            )


if __name__ == "__main__":
    main()
