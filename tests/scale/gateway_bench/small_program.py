"""An agent of sixty lines, of the standard library alone: it runs what the model says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Runs a command in the workspace.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


def ask(items: list[dict[str, object]]) -> list[dict[str, object]]:
    """What the model says next."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/responses",
        json.dumps({"model": "any", "input": items, "tools": [SHELL]}).encode(),
        {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        output: list[dict[str, object]] = json.load(reply)["output"]
    return output


def main(prompt: str) -> None:
    """Work until the model calls no tool."""
    items: list[dict[str, object]] = [{"role": "user", "content": prompt}]
    while True:
        said = ask(items)
        items += said
        calls = [one for one in said if one["type"] == "function_call"]
        if not calls:
            return
        for one in calls:
            command = json.loads(str(one["arguments"]))["command"]
            done = subprocess.run(
                ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60
            )
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": one["call_id"],
                    "output": f"exit code {done.returncode}\n{done.stdout}{done.stderr}",
                }
            )


if __name__ == "__main__":
    main(sys.argv[1])
