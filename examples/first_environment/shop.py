"""A first environment: a shop whose basket must end up as the task asks."""

from collections import Counter

from gymmesh import Environment, Rollout, Session, ToolError, tool

PRICES = {"apple": 2, "bread": 4, "tea": 7}


class Shop(Environment[Counter[str]]):
    """A small shop: fill the basket as asked."""

    state = Counter  # makes each session's own basket
    examples = "tasks.jsonl"

    @tool
    def add(self, session: Session[Counter[str]], item: str, count: int = 1) -> str:
        """Put some of an item into the basket."""
        if item not in PRICES:
            raise ToolError(f"We have no {item!r}, only: {', '.join(PRICES)}.")
        session.state[item] += count
        return f"{count} x {item}: {count * PRICES[item]}"

    def verify(self, session: Session[Counter[str]], rollout: Rollout) -> float:
        return float(session.state == Counter(rollout.task.payload["wanted"]))
