"""A program of its own: it knows OpenAI's API and nothing of gymmesh."""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import OpenAI

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}


def main(prompt: str) -> None:
    """Answer the prompt, with a calculator."""
    client = OpenAI()
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        completion: Any = client.chat.completions.create(
            model="any", messages=messages, tools=[ADD]
        )
        message = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            sys.stdout.write(f"{message.content}\n")
            return
        for call in message.tool_calls:
            numbers = json.loads(call.function.arguments)
            total = str(numbers["a"] + numbers["b"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": total})


if __name__ == "__main__":
    main(sys.argv[1])
