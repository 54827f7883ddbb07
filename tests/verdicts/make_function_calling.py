r"""Makes cases/function_calling.jsonl: which calls are the expected ones is written here by hand.

Run it as `.venv/bin/python -m tests.verdicts.make_function_calling`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

# Expected arguments, the same in other forms (as JSON text), others (as JSON text), why.
ARGUMENTS: list[tuple[dict[str, Any], list[str], list[str], str]] = [
    ({"x": "New York"}, ['{ "x" : "New York" }', '{"x":"New\\u0020York"}'], ['{"x":"New Jersey"}', '{"x":"York"}', '{"x":"new york city"}', '{"x":"York New"}'], "another place"),
    ({"x": "2024-01-05 10:00"}, ['{"x":"2024\\u002d01-05 10:00"}'], ['{"x":"2024-01-05 18:00"}', '{"x":"2024-01-06 10:00"}', '{"x":"2024-05-01 10:00"}', '{"x":"10:00 2024-01-05"}'], "another time"),
    ({"x": "delete the file now"}, ['\n{"x":\n"delete the file now"}'], ['{"x":"do not delete the file"}', '{"x":"delete the folder now"}', '{"x":"delete file"}', '{"x":"now delete the file"}'], "another command"),
    ({"x": "rm -rf /tmp/a"}, [], ['{"x":"rm -rf /tmp/b"}', '{"x":"rm -rf /"}', '{"x":"rm /tmp/a"}', '{"x":"ls /tmp/a"}'], "another command"),
    ({"x": "git push origin main"}, [], ['{"x":"git push origin dev"}', '{"x":"git pull origin main"}', '{"x":"git push --force origin main"}'], "another command"),
    ({"x": "order-8812"}, [], ['{"x":"order-8821"}', '{"x":"ORDER-8812"}', '{"x":"8812"}', '{"x":"order 8812"}'], "another identifier"),
    ({"x": "flight to Rome on Monday"}, [], ['{"x":"flight to Rome on Tuesday"}', '{"x":"flight to Oslo on Monday"}', '{"x":"flight from Rome on Monday"}'], "another flight"),
    ({"x": "SELECT a FROM t WHERE b = 1"}, [], ['{"x":"SELECT a FROM t WHERE b = 2"}', '{"x":"SELECT b FROM t WHERE a = 1"}', '{"x":"DELETE FROM t WHERE b = 1"}'], "another statement"),
    ({"x": "Café"}, ['{"x":"Cafe\\u0301"}', '{"x":"Caf\\u00e9"}'], ['{"x":"Cafe"}', '{"x":"café"}'], "another name"),
    ({"x": 1}, ['{"x":1.0}', '{"x":1e0}', '{"x":10E-1}'], ['{"x":"1"}', '{"x":true}', '{"x":1.0000001}', '{"x":[1]}', '{"x":null}', '{"x":-1}', '{"x":10}'], "another value or type"),
    ({"x": 12.5}, ['{"x":12.50}', '{"x":1.25e1}'], ['{"x":12.4}', '{"x":"12.5"}', '{"x":125}', '{"x":12}'], "another number"),
    ({"x": 0}, ['{"x":0.0}', '{"x":-0.0}'], ['{"x":false}', '{"x":null}', '{"x":""}', '{"x":1e-9}'], "another value or type"),
    ({"x": 1e-7}, ['{"x":0.0000001}', '{"x":1E-7}'], ['{"x":2e-7}', '{"x":0}', '{"x":1e7}', '{"x":1e-8}'], "another small number"),
    ({"x": 9007199254740993}, [], ['{"x":9007199254740992}', '{"x":9007199254740994}', '{"x":"9007199254740993"}'], "another large number"),
    ({"x": True}, [], ['{"x":1}', '{"x":"true"}', '{"x":false}', '{"x":null}'], "another value or type"),
    ({"x": None}, [], ['{}', '{"x":"null"}', '{"x":0}', '{"x":""}'], "null is not left out"),
    ({"x": ""}, [], ['{"x":null}', '{"x":" "}', '{}'], "empty text is text"),
    ({"x": [1, 2]}, ['{"x":[1.0,2]}', '{"x": [ 1 , 2 ]}'], ['{"x":[2,1]}', '{"x":[1]}', '{"x":[1,2,3]}', '{"x":"[1, 2]"}', '{"x":{"0":1}}'], "another list"),
    ({"x": {"a": 1, "b": "c"}}, ['{"x":{"b":"c","a":1}}', '{"x":{"b":"c","a":1.0}}'], ['{"x":{"a":1}}', '{"x":{"a":1,"b":"c","d":0}}', '{"x":{"a":2,"b":"c"}}', '{"x":{"A":1,"b":"c"}}', '{"x":"{}"}'], "another object"),
    ({"x": 1, "y": 2}, ['{"y":2,"x":1}', '{"y":2.0,"x":1}'], ['{"x":2,"y":1}', '{"x":1}', '{"x":1,"y":2,"z":3}', '{"x":1,"Y":2}'], "other arguments"),
    ({}, ["", "{ }", " "], ['{"x":1}', '{"":""}', "[]", "null", "{"], "other arguments or no JSON"),
    ({"x": "a"}, ['{"x":"\\u0061"}'], ['{"x":"b","x":"a"}', '{"x":"a","x":"a"}', '{"x":"a"', "x=a", '{"x":"a "}', '{"x ":"a"}', '{"x":"а"}', "{\"x\":'a'}"], "a key twice, no JSON or another text"),
    ({"x": "a", "n": {"k": 1}}, ['{"n":{"k":1},"x":"a"}'], ['{"x":"a","n":{"k":2,"k":1}}', '{"x":"a","n":{}}', '{"x":"a","n":null}'], "a key twice below or another object"),
]  # fmt: skip
TOOL = {
    "type": "function",
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "default": "c"}},
    },
}
SENTENCE = {"text": "Please tell Anna that the meeting is at 10:00 in room 4."}
# What the row's free text may be: the same sentence otherwise worded, and others.
WORDED: list[tuple[str, float]] = [
    ("Please tell Anna that the meeting is at 10:00 in room 4", 1.0),
    ("Tell Anna that the meeting is at 10:00 in room 4, please", 1.0),
    ("Please tell Anna the meeting is at 10:00 in room 4.", 1.0),
    ("Please let Anna know that the meeting is at 10:00 in room 4.", 1.0),
    ("Please tell Anna that the meeting is at 18:00 in room 4.", 0.0),
    ("Please tell Anna that the meeting is at 10:00 in room 5.", 0.0),
    ("Please tell Hanna that the meeting is at 10:00 in room 4.", 0.0),
    ("Please do not tell Anna that the meeting is at 10:00 in room 4.", 0.0),
    ("Please tell Anna that the meeting is not at 10:00 in room 4.", 0.0),
    ("Please tell Anna that the meeting is in room 4.", 0.0),
    ("The weather is nice at 10:00 in room 4, Anna", 0.0),
    ("10:00 4", 0.0), ("", 0.0),
]  # fmt: skip
# Free texts, what says the same, and what says something else.
FREE: list[tuple[str, list[str], list[str]]] = [
    ("Turn the heating on.", ["turn the heating on", "Please turn the heating on"], ["Turn the heating off.", "Turn the heating down.", "Do not turn the heating on."]),
    ("The offer is accepted.", ["the offer is accepted"], ["The offer is refused.", "The offer isn't accepted.", "Is the offer accepted?", "The offer was accepted."]),
    ("Please approve the request of Anna.", ["Approve the request of Anna", "approve request of Anna, please"], ["Please reject the request of Anna.", "Please approve the request of Hanna.", "Please approve the requests of Anna."]),
    ("I agree to the terms.", ["I agree to terms"], ["I disagree to the terms.", "I do not agree to the terms.", "You agree to the terms."]),
    ("The bridge is safe.", ["The bridge is safe"], ["The bridge is unsafe.", "The bridge is not safe.", "The bridge is safe?"]),
    ("The meeting is confirmed.", ["the meeting is confirmed!"], ["The meeting is cancelled.", "The meeting is unconfirmed.", "The meeting is not confirmed."]),
    ("Take the tablet before the meal.", ["Before the meal, take the tablet.", "Please take the tablet before the meal"], ["Take the tablet after the meal.", "Take the meal before the tablet."]),
    ("Increase the dose to the limit.", ["increase dose to the limit"], ["Decrease the dose to the limit.", "Increase the limit to the dose."]),
    ("Add Bo to the admin group.", ["Please add Bo to the admin group"], ["Remove Bo from the admin group.", "Add Jo to the admin group.", "Add Bo to the guest group."]),
    ("Book a flight from Oslo to Lima.", ["Please book the flight from Oslo to Lima"], ["Book a flight from Lima to Oslo.", "Book a flight to Oslo from Lima.", "Book a flight from Oslo to Rome."]),
    ("The patient is allergic to aspirin.", ["the patient is allergic to aspirin"], ["The patient is allergic to latex.", "The patient isn't allergic to aspirin."]),
    ("Paint the door blue.", ["Please paint the door blue"], ["Paint the door red.", "Paint the wall blue."]),
    ("Let Anna know that the train is late.", ["Tell Anna the train is late.", "let Anna know the train is late"], ["Let Anna know that the train is early.", "Ask Anna whether the train is late."]),
    ("I'm at home and can't come.", ["I am at home and cannot come.", "I’m at home and can not come"], ["I'm at home and can come.", "I'm at work and can't come."]),
    ("On Monday, call the bank.", ["Call the bank on Monday.", "Please call the bank on Monday"], ["On Tuesday, call the bank.", "On Monday, call the bank off.", "Don't call the bank on Monday."]),
    ("Open the window and close the door.", ["Please open the window and close the door"], ["Close the window and open the door.", "Open the door and close the window."]),
    ("Ship it to the US office.", ["ship it to the US office"], ["Ship it to the us office.", "Ship it to the UK office."]),
]  # fmt: skip


def _call(name: str, arguments: str, number: int = 0) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": f"c{number}"}


def _with_tools(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the functions that it calls, which any model would have been shown."""
    names = ("f",) if "city" in json.dumps(row) else ("f", "g", "send")
    tools = (
        [TOOL]
        if names == ("f",)
        else [{"type": "function", "name": name, "parameters": {}} for name in names]
    )
    return {"responses_create_params": {"input": "x", "tools": tools}} | row


def _answers(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"expected_answers": [{"name": name, "arguments": one} for name, one in calls]}


def _action(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"expected_action": {"type": "function_call", "name": name, "arguments": arguments}}


def _made(
    row: dict[str, Any],
    calls: list[dict[str, Any]],
    right: float | None,
    why: str,
    said: str = "",
    **more: Any,
) -> dict[str, Any]:
    message = (
        [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": said}],
            }
        ]
        if said
        else []
    )
    made = case(_with_tools(row), "", right, why, **more)
    del made["answer"]
    return made | {"items": [*calls, *message]}


def _single() -> Iterator[dict[str, Any]]:
    for expected, same, other, why in ARGUMENTS:
        for row in (_action("f", expected), _answers(("f", expected))):
            own = json.dumps(expected)
            yield _made(row, [_call("f", own)], 1.0, "the expected call")
            for text in (*same, *_layouts(expected)):
                yield _made(row, [_call("f", text)], 1.0, "the same in another form", clothes=True)
            for text in other:
                yield _made(row, [_call("f", text)], 0.0, why)
    row = _action("f", {"x": 1})
    for name in ("g", "F", "f ", "functions.f", "f(x=1)", ""):
        yield _made(row, [_call(name, '{"x":1}')], 0.0, "another function")


def _layouts(arguments: dict[str, Any]) -> Iterator[str]:
    """The same JSON in other layouts, as Python's own reader confirms."""
    for options in (
        {"indent": 1},
        {"indent": 4, "ensure_ascii": False},
        {"separators": (" , ", " : ")},
    ):
        text = json.dumps(dict(reversed(arguments.items())), **options)
        assert json.loads(text) == arguments
        if text != json.dumps(arguments):
            yield text


def _several() -> Iterator[dict[str, Any]]:
    a, b = ("f", {"x": 1}), ("f", {"x": 2})
    call_a, call_b, other = _call("f", '{"x":1}', 1), _call("f", '{"x":2}', 2), _call("g", "{}", 3)
    row = _answers(a, b)
    yield _made(row, [call_a, call_b], 1.0, "both calls")
    yield _made(row, [call_b, call_a], 1.0, "calls have no order", clothes=True)
    yield _made(row, [call_a], 0.0, "a call is missing")
    yield _made(row, [call_a, call_a], 0.0, "a call twice")
    yield _made(row, [call_a, call_b, other], 0.0, "a call too many")
    yield _made(row, [call_a, call_b, call_b], 0.0, "a call too many")
    yield _made(row, [], 0.0, "no call", said="I can't do that.")
    kept: dict[str, Any] = {"options": {"call_order": "kept"}}
    yield _made(row, [call_b, call_a], 0.0, "the order is kept", **kept)
    yield _made(row, [call_a, call_b], 1.0, "the order is kept", **kept)
    batch = {"expected_action": {"type": "function_call_batch", "calls": [
        {"type": "function_call", "name": name, "arguments": json.dumps(one)} for name, one in (a, b)]}}  # fmt: skip
    yield _made(batch, [call_b, call_a], 1.0, "a batch has no order", clothes=True)
    yield _made(batch, [call_a], 0.0, "a call is missing")
    yield _made(batch, [call_a, call_b, other], 0.0, "a call too many")
    nothing = _answers()
    message = {"expected_action": {"type": "message", "content": "x"}}
    for none in (nothing, message):
        yield _made(none, [], 1.0, "no call, and a message", said="You're welcome!")
        yield _made(none, [], 0.0, "nothing at all")
        yield _made(none, [], 0.0, "a blank message", said=" \n")
        yield _made(none, [call_a], 0.0, "a call where none is expected")
        yield _made(none, [call_a], 0.0, "a call where none is expected", said="Done.")


def _defaults() -> Iterator[dict[str, Any]]:
    for expected, made, right, why, clothes in [
        ({"city": "Oslo"}, {"city": "Oslo", "unit": "c"}, 1.0, "the default written out", True),
        ({"city": "Oslo", "unit": "c"}, {"city": "Oslo"}, 1.0, "the default left out", True),
        ({"city": "Oslo"}, {"city": "Oslo"}, 1.0, "the expected call", False),
        ({"city": "Oslo"}, {"city": "Oslo", "unit": "f"}, 0.0, "not the default", False),
        ({"city": "Oslo", "unit": "f"}, {"city": "Oslo"}, 0.0, "not the default", False),
        ({"city": "Oslo"}, {"city": "Oslo", "force": True}, 0.0, "an argument too many", False),
        ({"city": "Oslo"}, {"unit": "c"}, 0.0, "an argument is missing", False),
        ({"city": "Oslo"}, {"city": "Oslo", "unit": None}, 0.0, "null is not the default", False),
    ]:
        for row in (_answers(("f", expected)), _action("f", expected)):
            more: dict[str, Any] = {"clothes": True} if clothes else {}
            yield _made(row, [_call("f", json.dumps(made))], right, why, **more)
    yield _made(
        _answers(("other", {})),
        [_call("other", "{}")],
        None,
        "a function that the model does not have",
    )


def _cases() -> Iterator[dict[str, Any]]:
    yield from _single()
    yield from _several()
    yield from _defaults()
    free = _action("send", SENTENCE) | {"free_text_arguments": ["text"]}
    for text, right in WORDED:
        clothes: dict[str, Any] = {"clothes": True} if right else {}
        yield _made(
            free,
            [_call("send", json.dumps({"text": text}))],
            right,
            "the same message, or another",
            **clothes,
        )
        yield _made(
            _action("send", SENTENCE),
            [_call("send", json.dumps({"text": text}))],
            0.0,
            "the row does not ask for similarity",
        )
    for sentence, same, other in FREE:
        row = _action("send", {"text": sentence}) | {"free_text_arguments": ["text"]}
        for text in same:
            call = _call("send", json.dumps({"text": text}))
            yield _made(row, [call], 1.0, "the same message", clothes=True)
        for text in other:
            yield _made(row, [_call("send", json.dumps({"text": text}))], 0.0, "another message")
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "nothing is expected"),
        ({"expected_answers": {}}, "not a list"),
        ({"expected_action": {"type": "x"}}, "not an action"),
        (_answers() | {"free_text_arguments": 1}, "not names"),
    ]
    for row, why in refused:
        yield _made(row, [], None, why)


if __name__ == "__main__":
    write("function_calling", _cases())
