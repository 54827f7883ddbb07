"""An agent of its own kind: it asks until the answer is a number, and writes down what it heard.

    python3 agent.py QUESTION

It knows the Chat Completions API and Python's standard library, and nothing of gymmesh. The answer
goes into the file `answer` of the folder in which it runs.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from urllib.parse import urlsplit

MOST_QUESTIONS = 3


class Conversation:
    """A conversation with the model that the variables of the environment name."""

    def __init__(self) -> None:
        url = urlsplit(os.environ["OPENAI_BASE_URL"])
        self._connection = http.client.HTTPConnection(url.hostname or "", url.port)
        self._path = f"{url.path}/chat/completions"
        self._messages: list[dict[str, str]] = []

    def ask(self, question: str) -> str:
        """Say something; what the model answers."""
        self._messages.append({"role": "user", "content": question})
        body = {"model": os.environ["OPENAI_MODEL"], "messages": self._messages}
        headers = {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        }
        self._connection.request("POST", self._path, json.dumps(body), headers)
        response = self._connection.getresponse()
        found = json.load(response)
        if response.status != 200:
            sys.exit(f"the model answered {response.status}: {found}")
        answer = found["choices"][0]["message"]["content"] or ""
        self._messages.append({"role": "assistant", "content": answer})
        return str(answer)


def main(question: str) -> None:
    """Ask at most three times, in one conversation."""
    conversation = Conversation()
    for _ in range(MOST_QUESTIONS):
        answer = conversation.ask(question)
        if answer.isdecimal():
            break
    with open("answer", "w", encoding="utf-8") as file:
        file.write(answer)


if __name__ == "__main__":
    main(sys.argv[1])
