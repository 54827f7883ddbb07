"""Writes the vectors that clients in every language are tested with: tests/contract/vectors.

    python -m tests.contract.write_vectors

`codec.json` and `rows.json` are made from the inputs below by the Python code, whose own tests show
that it is right, and `errors.json` from the contract's descriptors. tests/contract/test_vectors.py
fails when what is committed is stale.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from google.rpc import code_pb2

import gymmesh_responses as codec
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.collector.requests import repeat_seed
from gymmesh_client.rows import FailedAttempt, completed_row, failure_row
from gymmesh_client.tasks import TaskDefaults, TaskReader, TaskRow
from gymmesh_runtime.errors import RULES, reason_name

FOLDER: Final = Path(__file__).parent / "vectors"
FOLDS: Final = sorted((Path(__file__).parent / "fold_vectors").glob("*.json"))

READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "response": codec.response_from_json,
    "params": codec.params_from_json,
    "item": codec.item_from_json,
    "tool": codec.tool_from_json,
    "usage": codec.usage_from_json,
}

#: What a document is, what the case shows, and its text.
DOCUMENTS: Final = [
    ("item", "a message of plain text", '{"type":"message","role":"user","content":"hi"}'),
    ("item", "a message without a type", '{"role":"user","content":"hi"}'),
    ("item", "a message of an empty text", '{"type":"message","role":"user","content":""}'),
    ("item", "a message of an empty list", '{"type":"message","role":"user","content":[]}'),
    (
        "item",
        "an answer in parts",
        '{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":'
        '[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}',
    ),
    (
        "item",
        "annotations stand in the overlay",
        '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"see",'
        '"annotations":[{"type":"url_citation","url":"https://example.org","start_index":0}]}]}',
    ),
    (
        "item",
        "a refusal, and a part of a kind without a name",
        '{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"},'
        '{"type":"output_audio","data":"AAAA"}]}',
    ),
    (
        "item",
        "an image and text for the model",
        '{"type":"message","role":"user","content":[{"type":"input_text","text":"what is it?"},'
        '{"type":"input_image","image_url":"data:image/png;base64,cG5n","detail":"low"}]}',
    ),
    ("item", "content that is null", '{"type":"message","role":"assistant","content":null}'),
    ("item", "content that is an object", '{"type":"message","role":"user","content":{"a":1}}'),
    ("item", "a role that is no text", '{"type":"message","role":7,"content":"x"}'),
    (
        "item",
        "a call of a function",
        '{"type":"function_call","id":"fc_1","call_id":"call_1","name":"add",'
        '"arguments":"{\\"a\\": 1}","status":"completed"}',
    ),
    (
        "item",
        "arguments that are no JSON, and empty ones",
        '{"type":"function_call","call_id":"call_2","name":"add","arguments":""}',
    ),
    (
        "item",
        "arguments with an unpaired surrogate",
        '{"type":"function_call","call_id":"call_3","name":"add","arguments":"\\ud800 {"}',
    ),
    ("item", "the output of a call", '{"type":"function_call_output","call_id":"c","output":"3"}'),
    (
        "item",
        "an output in parts",
        '{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"3"}]}',
    ),
    (
        "item",
        "an output that is null",
        '{"type":"function_call_output","call_id":"c","output":null}',
    ),
    (
        "item",
        "reasoning",
        '{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"so"}],'
        '"content":[{"type":"reasoning_text","text":"because"}],"encrypted_content":"xyz"}',
    ),
    ("item", "reasoning with nothing in it", '{"type":"reasoning","summary":[]}'),
    (
        "item",
        "a summary with a part of another kind",
        '{"type":"reasoning","summary":[{"type":"summary_text","text":"a"},{"type":"x"}]}',
    ),
    ("item", "an item of a kind without a name", '{"type":"web_search","id":"ws","n":[1,2.0]}'),
    ("item", "an item without kind or role", '{"answer":42}'),
    ("item", "more keys than the contract types", '{"role":"user","content":"x","mood":{"a":[]}}'),
    ("tool", "a function", '{"type":"function","name":"add","description":"Adds.","strict":true,'
     '"parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}'),
    ("tool", "parameters that are null", '{"type":"function","name":"now","parameters":null}'),
    ("tool", "a function of the least", '{"type":"function","name":"now"}'),
    ("tool", "a tool of the model's host", '{"type":"web_search","filters":{"allowed":["a"]}}'),
    ("usage", "all that is typed", '{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},'
     '"output_tokens":5,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":15}'),
    ("usage", "details with more in them", '{"input_tokens":1,"input_tokens_details":'
     '{"cached_tokens":0,"audio_tokens":3},"output_tokens":2}'),
    ("usage", "a count beyond 64 bits", '{"input_tokens":123456789012345678901234567890}'),
    ("usage", "a count that is a real", '{"input_tokens":1.0,"output_tokens":-0.0}'),
    ("params", "input as text", '{"input":"hi"}'),
    ("params", "an empty input", '{"input":[]}'),
    ("params", "no input", '{"model":"m"}'),
    ("params", "input that is null", '{"input":null,"tools":null}'),
    (
        "params",
        "most parameters",
        '{"model":"m","input":[{"role":"user","content":"hi"}],"instructions":"Be brief.",'
        '"tools":[{"type":"function","name":"add"}],"tool_choice":"auto","temperature":0.7,'
        '"top_p":1,"max_output_tokens":64,"parallel_tool_calls":false,"metadata":{"a":"b"},'
        '"text":{"format":{"type":"text"}},"reasoning":{"effort":"low"},"previous_response_id":"r"}',
    ),
    ("params", "numbers as they were written", '{"input":[],"temperature":1,"top_p":1.0}'),
    ("params", "parameters of a later API", '{"input":[],"verbosity":"high","cache":{"k":null}}'),
    ("params", "a temperature that is a text", '{"input":[],"temperature":"hot"}'),
    ("params", "a tool choice that is an object",
     '{"input":[],"tool_choice":{"type":"function","name":"add"}}'),
    ("response", "the least", '{"id":"r","output":[]}'),
    ("response", "no output", '{"id":"r"}'),
    (
        "response",
        "a whole answer",
        '{"id":"resp_1","object":"response","created_at":1700000000,"model":"m",'
        '"status":"completed","error":null,"incomplete_details":null,"output":[{"type":"message",'
        '"id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text",'
        '"text":"hi","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":1,'
        '"total_tokens":4},"parallel_tool_calls":true,"tools":[],"temperature":1.0}',
    ),
    (
        "response",
        "an answer that was cut short",
        '{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},'
        '"output":[]}',
    ),
    (
        "response",
        "an answer that failed",
        '{"id":"r","status":"failed","error":{"code":"server_error","message":"no"},"output":[]}',
    ),
    ("response", "integers of any size and an exponent",
     '{"id":"r","output":[],"big":18446744073709551616,"small":-9223372036854775809,"real":1e300}'),
    ("response", "keys and texts beyond the basic plane",
     '{"id":"r","output":[],"\\ud83d\\ude00":"\\u0000\\u2028","\\udc00":"lone"}'),
    ("response", "the last of several equal keys counts", '{"id":"a","id":"b","output":[]}'),
]  # fmt: skip


#: What a row of a task file shows, and its text.
ROWS: Final = [
    ("the least", '{"task_id":"a","responses_create_params":{"input":"hi"}}'),
    (
        "all keys that are read, and two for the verifier",
        '{"task_id":"b","environment":"math","agent":"solver","seed":7,"tags":{"level":"easy"},'
        '"responses_create_params":{"input":[{"role":"user","content":"2+3?"}],"temperature":0},'
        '"expected_answer":"5","metadata":{"source":"s"}}',
    ),
    (
        "an id that is a whole number stays for the verifier",
        '{"task_id":17,"responses_create_params":{"input":[]}}',
    ),
    (
        "an environment and an agent that are objects are the verifier's",
        '{"task_id":"c","environment":{"room":1},"agent":["x"],'
        '"responses_create_params":{"input":"hi"}}',
    ),
    ("a prompt that is a text", '{"task_id":"e","prompt":"2+3?","expected_answer":"5"}'),
    (
        "a prompt that is a list of messages",
        '{"task_id":"f","prompt":[{"role":"system","content":"Be short."},'
        '{"role":"user","content":"2+3?"}]}',
    ),
    (
        "a prompt beside parameters is the verifier's",
        '{"task_id":"g","prompt":"2+3?","responses_create_params":{"input":"hi"}}',
    ),
    ("a seed below zero", '{"task_id":"d","seed":-1,"responses_create_params":{"input":"hi"}}'),
    # The other rows have an id made of their content: of its JSON with all keys in order.
    ("no id", '{"responses_create_params":{"input":"é","temperature":1.0},"b":[1,{"z":null}]}'),
    ("an id that is null", '{"task_id":null,"prompt":"hi"}'),
    (
        "no id, and keys at all levels out of order, one of them twice",
        '{ "prompt" : "hi", "b":{"y":[{"d":2,"c":1}], "x":null},"a":true, "a":{}, "":[] }',
    ),
    (
        "no id, and keys whose order by UTF-16 is another one than by code points",
        '{"prompt":"hi","\\ud83d\\ude00":1,"\\uffff":2,"\\u00e9":3,"z":4,"\\ud800":5}',
    ),
    (
        "no id, and keys that are whole numbers",
        '{"prompt":"hi","10":{"9":1,"!":2,"10":3},"9":4,"-1":5,"00":6}',
    ),
    (
        "no id, and reals of all sizes",
        '{"prompt":"hi","n":[1.0,-0.0,0.10,1e-5,1.5E-6,0.00001234,-1e-7,1e15,1e16,1e+21,2e23,'
        "123456789012345678.0,9007199254740993.0,1e22,5e-324,1e-323,1.7976931348623157e308,"
        "2.2250738585072014e-308,2e-3,0.30000000000000004,4.35,8.41e21,9999999999999998.0]}",
    ),
    (
        "no id, and integers of all sizes",
        '{"prompt":"hi","n":[0,-0,9223372036854775807,-9223372036854775808,18446744073709551615,'
        "18446744073709551616,-123456789012345678901234567890]}",
    ),
    (
        "no id, and characters that are escaped, or are not",
        r'{"prompt":"\u0000\b\t\n\f\r\u001F\"\\\/\u007f\u2028\u00e9\ud83d\ude00<&>"}',
    ),
    (
        "no id, and unpaired surrogates beside other characters and a large integer",
        r'{"prompt":"hi","t":["\ud800 é\n\udc00","\udc00\ud800"],"n":18446744073709551616}',
    ),
]
SEEDS: Final = [(7, 0), (7, 1), (-1, 3), (2**63 - 1, 1), (-(2**63), 2)]


def task_vectors() -> dict[str, Any]:
    """`rows`: each `about`, `row` (its text) and `task`, where a row that names none is given the
    environment `default_environment` and the agent `default_agent`. `seeds`: a task's, a repeat's
    index, and the seed sent for it.
    """
    reader = TaskReader(TaskDefaults("default_environment", "default_agent"))
    rows = []
    for about, text in ROWS:
        read = reader.row(1, text.encode())
        assert isinstance(read, TaskRow), read
        message = json_format.MessageToDict(read.task)
        rows.append({"about": about, "row": text, "task": message})
    seeds = [
        {"seed": str(seed), "repeat_index": index, "sent": str(repeat_seed(seed, index))}
        for seed, index in SEEDS
    ]
    return {"rows": rows, "seeds": seeds}


def codec_vectors() -> list[dict[str, Any]]:
    """Each with `noun`, `about`, `json` (the document's text) and `message` (as proto JSON)."""
    return [
        {
            "noun": noun,
            "about": about,
            "json": text,
            "message": json_format.MessageToDict(READERS[noun](text)),
        }
        for noun, about, text in DOCUMENTS
    ]


def task() -> rollout_pb2.Task:
    """The task of all row vectors."""
    params = {
        "input": [{"role": "user", "content": "What is 2+3?"}],
        "temperature": 0.7,
        "metadata": {"of": "the task"},
    }
    # Of the metadata's columns, the row of no vector has `seed`, and most have no weights.
    metadata = {"source": "s", "timings": 1, "seed": "first", "weights_versions": 7}
    payload = {"expected_answer": "5", "metadata": metadata, "reward": "own"}
    return rollout_pb2.Task(
        task_id="t-1",
        environment="math",
        agent="tool_loop",
        params=codec.params_from_json(params),
        payload_json=codec.dumps(payload),
        seed=7,
        tags={"level": "easy"},
    )


#: What a rollout's only answer shows, its document, and why the rollout ended.
ANSWERS: Final = [
    *(
        (f"incomplete_details are {text}", f'{{"output":[],"incomplete_details":{text}}}', "")
        for text in (
            "null",
            "{}",
            "[]",
            '""',
            "0",
            "0.0",
            "-0.0",
            "false",
            "true",
            "1",
            "0.5",
            "18446744073709551616",
            '"cut"',
            '"0"',
            "[null]",
            '{"reason":null}',
            '{"reason":7}',
            '{"reason":""}',
            '{"reason":"content_filter","more":{"at":1.0}}',
        )
    ),
    (
        "incomplete_details are 0, and the rollout was cut short",
        '{"output":[],"incomplete_details":0}',
        "MAX_OUTPUT_TOKENS",
    ),
    (
        "incomplete_details say more than the rollout",
        '{"output":[],"incomplete_details":{"reason":"other"}}',
        "CONTENT_FILTER",
    ),
    ("the status is of its own", '{"id":"a","status":"queued","output":[]}', ""),
    ("id, model and status are no text", '{"id":1,"model":[],"status":"\\ud800"}', ""),
    ("id, model and status are empty", '{"id":"","model":"","status":"","output":[]}', ""),
    ("the error is no object", '{"output":[],"error":"overloaded"}', ""),
    ("the error is empty", '{"output":[],"error":{},"status":"failed"}', ""),
    ("the error is false", '{"output":[],"error":false}', ""),
]

#: What a list of log probabilities shows, its text, and what it is as float32; None: it does not
#: fit.
LOGPROBS: Final[list[tuple[str, str, list[float] | None]]] = [
    ("reals", "[-0.5,-0.1]", [-0.5, -0.1]),
    ("integers", "[-1,0,-23]", [-1, 0, -23]),
    ("integers among reals", "[-1,-0.25,0,-3.0]", [-1, -0.25, 0, -3]),
    ("zeros: an integer has no sign", "[-0,-0.0,0.0]", [0, -0.0, 0]),
    ("an integer that a float32 rounds", "[-16777217]", [-16777216]),
    ("null for one that is not finite", "[null,-1]", [math.nan, -1]),
    ("an empty list", "[]", []),
    ("a text in the list", '[-1,"-1"]', None),
    ("a bool in the list", "[-1,true]", None),
    ("a list in the list", "[[-1]]", None),
    ("a number that is no list", "-1", None),
]


#: What the tokens of a rollout's only call show, their ids and log probabilities, and whether the
#: rollout has a row.
TOKENS: Final = [
    ("as many log probabilities as ids", [1, 2], [-0.5, 0.0], True),
    ("ids alone", [1, 2], [], True),
    ("log probabilities that are not finite", [1, 2, 3], [math.nan, -math.inf, math.inf], True),
    ("a log probability that was rounded", [1], [0.0009], True),
    ("a positive log probability", [1, 2], [-0.5, 0.0011], False),
    ("a positive one after one that is not finite", [1, 2], [math.nan, 1.0], False),
    ("more log probabilities than ids", [1], [-0.5, -0.5], False),
    ("fewer log probabilities than ids", [1, 2], [-0.5], False),
    ("log probabilities of no ids", [], [-0.5], False),
    ("an id below zero", [-1], [-0.5], False),
]


def rollout_of(answer: str, stop_reason: str) -> rollout_pb2.Rollout:
    """A completed rollout of one model call with this answer, and nothing else."""
    rollout = rollout_pb2.Rollout(rollout_id="r-1", attempt=1)
    call = rollout.model_calls.add(call_id="c-1", model="policy")
    call.response.CopyFrom(codec.response_from_json(answer))
    reason = f"STOP_REASON_{stop_reason or 'MODEL_FINISHED'}"
    rollout.completed.stop_reason = rollout_pb2.StopReason.Value(reason)
    return rollout


def rollout_with_tokens(ids: list[int], logprobs: list[float]) -> rollout_pb2.Rollout:
    """A completed rollout whose only call has these."""
    rollout = rollout_of('{"output":[]}', "")
    tokens = rollout.model_calls[0].tokens
    tokens.output_token_ids = struct.pack(f"<{len(ids)}i", *ids)
    tokens.logprobs = struct.pack(f"<{len(logprobs)}f", *logprobs)
    return rollout


#: What sums show, the token counts of each call, and the microseconds that each took.
SUMS: Final = [
    ("beyond int64", [2**63 - 1, 2**63 - 1, 5], 2**64 - 1),
    ("below int64", [-(2**63), -1, -1], 1),
    ("within int64, though a part of them is not", [2**63 - 1, 2**63 - 1, -(2**63), -7], 2**63),
    ("at the bounds", [2**63 - 2, 1], 2**63 - 1),
]


def rollout_with_sums(counts: list[int], total_us: int) -> rollout_pb2.Rollout:
    """A completed rollout whose root agent, one actor, environment and tools have these counts."""
    rollout = rollout_of('{"output":[]}', "")
    del rollout.model_calls[:]
    turn = rollout.turns.add(turn=1)
    for number, count in enumerate(counts):
        for actor in ("", "critic"):
            call = rollout.model_calls.add(call_id=f"c-{number}{actor}", actor=actor)
            usage = call.response.usage
            usage.input_tokens = usage.cached_tokens = count
            usage.output_tokens = usage.reasoning_tokens = count
            call.timings.total_us = total_us
        answer = rollout.tool_calls.add().completed
        answer.model_call_id, answer.call_id = f"c-{number}", f"f-{number}"
        answer.timings.total_us = total_us
        turn.model_usage.add(
            model="judge", calls=2**32 - 2, input_tokens=count, output_tokens=count
        )
    return rollout


def has_row(rollout: rollout_pb2.Rollout) -> bool:
    """Whether it can be written as a row."""
    try:
        row_of(rollout)
    except ValueError:
        return False
    return True


def row_of(rollout: rollout_pb2.Rollout) -> Any:
    """Its row as parsed JSON."""
    if rollout.HasField("failed"):
        row = failure_row(task(), FailedAttempt(rollout.failed.failure, rollout))
    else:
        row = completed_row(task(), rollout)
    return json.loads(codec.dumps_clean(row))


def row_vectors() -> dict[str, Any]:
    """`task`; `rows`: each the name of a fold vector, whose `rollout` has become the `row`;
    `answers`: each `about`, the `rollout` and its row's `response`; `logprobs`: each `about`,
    `json` and the bytes of it in Base64, null where it does not fit; `tokens`: each `about`, the
    `rollout` and whether it `has_row`; `sums`: each `about`, the `rollout` and the `row`
    that it has become.
    """
    rows = []
    for path in FOLDS:
        vector = json.loads(path.read_text(encoding="utf-8"))
        if "rollout" in vector:
            rollout = json_format.ParseDict(vector["rollout"], rollout_pb2.Rollout())
            rows.append({"fold_vector": path.stem, "row": row_of(rollout)})
    answers = []
    for about, answer, stop_reason in ANSWERS:
        rollout = rollout_of(answer, stop_reason)
        response = row_of(rollout)["response"]
        message = json_format.MessageToDict(rollout)
        answers.append({"about": about, "rollout": message, "response": response})
    logprobs = [
        {"about": about, "json": text, "bytes": None if numbers is None else packed(numbers)}
        for about, text, numbers in LOGPROBS
    ]
    tokens = []
    for about, ids, given, expected in TOKENS:
        rollout = rollout_with_tokens(ids, given)
        assert has_row(rollout) is expected, about
        message = json_format.MessageToDict(rollout)
        tokens.append({"about": about, "rollout": message, "has_row": expected})
    sums = []
    for about, counts, total_us in SUMS:
        rollout = rollout_with_sums(counts, total_us)
        message = json_format.MessageToDict(rollout)
        sums.append({"about": about, "rollout": message, "row": row_of(rollout)})
    return {
        "task": json_format.MessageToDict(task()),
        "rows": rows,
        "answers": answers,
        "logprobs": logprobs,
        "tokens": tokens,
        "sums": sums,
    }


def packed(numbers: list[float]) -> str:
    """Little-endian float32 numbers in Base64."""
    return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def error_vectors() -> list[dict[str, Any]]:
    """Every reason with its rule."""
    return [
        {
            "reason": reason_name(number),
            "number": number,
            "code": code_pb2.Code.Name(rule.code),
            "retry_safe": rule.retry_safe,
            "repeats": rule.repeats,
            "boundary": rollout_pb2.Boundary.Name(rule.boundary).removeprefix("BOUNDARY_"),
        }
        for number, rule in RULES.items()
    ]


def texts() -> dict[str, str]:
    """The files, by name, as they should be."""
    made = {
        "codec.json": codec_vectors(),
        "errors.json": error_vectors(),
        "rows.json": row_vectors(),
        "tasks.json": task_vectors(),
    }
    return {
        name: json.dumps(value, indent=1, ensure_ascii=True) + "\n" for name, value in made.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in texts().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
