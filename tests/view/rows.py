"""Rollouts to look at: what agents do in four environments, and rows that mean harm."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

HOSTILE: Final = "hostile-1"
_TOOL: Final = {
    "type": "function",
    "name": "add",
    "description": "Put some of an item into the basket.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "default": 1}},
        "required": ["item"],
    },
}
_ITEMS: Final = ("apple", "tea", "bread", "cheese", "pear", "milk")
_STARTED: Final = 1_795_276_216.0


def write_scene(path: Path, tasks: int = 24, *, harm: bool = True) -> Path:
    """A file of rollouts: each task four times, and two rows that mean harm if asked for."""
    with path.open("w", encoding="utf-8") as file:
        for made in [*scene(tasks), *(hostile() if harm else ())]:
            file.write(json.dumps(made) + "\n")
    return path


def scene(tasks: int = 24) -> Iterator[Json]:
    """The rows of `write_scene` that mean no harm."""
    dice = random.Random(7)
    for number in range(tasks):
        for repeat in range(4):
            make = (_shop, _sum, _picture, _debate)[number % 4]
            made = make(dice, number, repeat)
            yield failed(made) if dice.random() < 0.06 else made


def row(
    environment: str,
    number: int,
    repeat: int,
    prompt: Any,
    output: list[Json],
    reward: float | None,
    **more: Any,
) -> Json:
    """A completed rollout's row."""
    dice = random.Random(number * 31 + repeat)
    task = f"{environment}-{number}"
    calls = [one for one in output if one["type"] == "function_call"]
    model_us = 900_000 + dice.randrange(2_000_000)
    tools_us = 40_000 * len(calls) + dice.randrange(20_000)
    score = reward or 0.0
    brief = min(1.0, 5 * score)
    return {
        "responses_create_params": {"input": prompt, "temperature": 0.7, **more.pop("params", {})},
        "response": {
            "id": f"resp_{number}_{repeat}",
            "model": "policy-7b",
            "output": output,
            "usage": {
                "input_tokens": 120 + 40 * len(output),
                "output_tokens": 30 + 25 * len(output),
            },
        },
        "reward": reward,
        "task_id": task,
        "rollout_id": f"ro-{environment}-{number}-{repeat}",
        "run_id": "run-night-7",
        "repeat_index": repeat,
        "attempt": 1,
        "environment": environment,
        "agent": "tool_loop",
        "tags": {"level": ("easy", "hard")[number % 2]},
        "verification": {
            "status": "VERIFIED",
            "reward": reward,
            "reason": "",
            "components": [
                {"name": "correct", "value": (score - 0.2 * brief) / 0.8, "weight": 0.8},
                {"name": "brief", "value": brief, "weight": 0.2},
            ],
            "verifier": environment,
            "version": "1",
            "stages": [
                {"name": "compare", "duration_us": 1_400, "note": ""},
                {"name": "score", "duration_us": 300, "note": "two components"},
            ],
            "evidence": {"expected": number, "exact": 2**53 + 1},
        },
        "stop_reason": "MODEL_FINISHED",
        "metadata": {
            "steps_taken": 1 + len(calls),
            "tools_used": sorted({one["name"] for one in calls}),
            "verified": reward is not None,
            "timings": {
                "started_at": _STARTED + number * 4 + repeat,
                "duration_us": model_us + tools_us + 8_000,
                "model_us": model_us,
                "tools_us": tools_us,
                "verify_us": 1_800,
            },
        },
        **more,
    }


def text(said: str, **more: Any) -> Json:
    """An answer of the model in text."""
    part = {"type": "output_text", "text": said, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **more}


def reasoning(said: str) -> Json:
    """What the model thought."""
    part = {"type": "reasoning_text", "text": said}
    return {"type": "reasoning", "summary": [], "content": [part]}


def png() -> str:
    """A picture of two halves as a data URL."""
    lines = b"".join(
        b"\0" + b"".join(bytes((90, 120, 200) if x < 32 else (240, 180, 90)) for x in range(64))
        for _ in range(40)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 40, 8, 2, 0, 0, 0))
    body = head + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _tokens(dice: random.Random, held: list[int], sampled: int) -> Json:
    ids = [dice.randrange(50_000) for _ in range(sampled)]
    fields = {
        "prompt_token_ids": list(held),
        "generation_token_ids": ids,
        "generation_log_probs": [-(dice.random() ** 4) * 6 for _ in ids],
    }
    held += ids
    return fields


def _shop(dice: random.Random, number: int, repeat: int) -> Json:
    wanted = dice.sample(_ITEMS, 3)
    held = [dice.randrange(50_000) for _ in range(96)]
    output: list[Json] = []
    good = dice.random() < 0.6
    for step, item in enumerate(wanted if good else wanted[:2]):
        output.append(reasoning(f"Next is the {item}; then I look what is still missing."))
        arguments = json.dumps({"item": item, "count": 1 + step})
        call_id = f"call_{step}"
        output.append(
            {
                "type": "function_call",
                "name": "add",
                "call_id": call_id,
                "arguments": arguments,
                **_tokens(dice, held, 34),
            }
        )
        basket = {"basket": {one: 1 + at for at, one in enumerate(wanted[: step + 1])}, "total": 7}
        output.append(
            {"type": "function_call_output", "call_id": call_id, "output": json.dumps(basket)}
        )
        held += [dice.randrange(50_000) for _ in range(20)]
    output.append(text("Everything is in the basket.", **_tokens(dice, held, 12)))
    prompt = [
        {"role": "system", "content": "You shop for the user. Be brief."},
        {"role": "user", "content": f"Put {', '.join(wanted)} into the basket (order {number})."},
    ]
    reward = 1.0 if good else 0.25
    return row("shop", number, repeat, prompt, output, reward, params={"tools": [_TOOL]})


def _sum(dice: random.Random, number: int, repeat: int) -> Json:
    left, right = 17 + number, 23
    answer = left * right + (0 if dice.random() < 0.5 else dice.randrange(1, 9))
    said = f"{left} × {right} is {left} × 20 + {left} × 3, so the answer is {answer}."
    tokens = _tokens(dice, [1, 2, 3], len(said.split()))
    spoken = text(said, **tokens)
    spoken["content"][0]["logprobs"] = [
        {"token": f"{word} ", "logprob": logprob}
        for word, logprob in zip(said.split(), tokens["generation_log_probs"], strict=True)
    ]
    output = [reasoning(f"{left} times {right}: split the second factor."), spoken]
    reward = float(answer == left * right)
    prompt = f"What is {left} * {right}?"
    return row("sums", number, repeat, prompt, output, reward, expected_answer=left * right)


def _picture(dice: random.Random, number: int, repeat: int) -> Json:
    parts = [
        {"type": "input_text", "text": "Which colours has the picture?"},
        {"type": "input_image", "image_url": png()},
    ]
    prompt = [{"role": "user", "content": parts}]
    reward = round(dice.random(), 2)
    return row("pictures", number, repeat, prompt, [text("Blue and orange.")], reward)


def _debate(dice: random.Random, number: int, repeat: int) -> Json:
    critic = [
        {"role": "user", "content": "Judge the proposal."},
        text("It leaves out the costs. I would not accept it as it is."),
    ]
    writer = [
        {"role": "user", "content": "Write a proposal."},
        text("We plant trees along the street."),
    ]
    actors = [
        _actor("critic", critic, round(dice.random(), 2)),
        _actor("writer", writer, 0.5),
    ]
    forks = [{"call_id": "c3", "reason": "HISTORY_REWRITTEN", "common_tokens": 41}]
    made = row(
        "debate", number, repeat, f"Should the street have trees? ({number})",
        [text("The writer proposes trees; the critic asks for the costs.")],
        round(dice.random(), 2), actors=actors,
    )  # fmt: skip
    made["metadata"]["token_forks"] = forks
    made["metadata"]["weights_versions"] = [3, 4]
    made["stop_reason"] = ("MAX_STEPS", "MODEL_FINISHED")[repeat % 2]
    return made


def _actor(name: str, items: list[Json], reward: float) -> Json:
    return {
        "name": name,
        "models": ["policy-7b"],
        "model_calls": 1,
        "trainable": name == "writer",
        "reward": reward,
        "usage": {"input_tokens": 20, "output_tokens": 11, "total_tokens": 31},
        "conversations": [{"items": items}],
    }


def failed(made: Json) -> Json:
    """The same rollout, had its model failed."""
    for key in ("reward", "verification", "stop_reason"):
        made.pop(key)
    made["response"]["output"] = made["response"]["output"][:1]
    made["failure"] = {
        "boundary": "MODEL",
        "status": {
            "code": 14,
            "message": "the endpoint of model 'policy' failed (HTTP 500)",
            "reason": "MODEL_SERVER_ERROR",
            "metadata": {"http_status": "500", "model": "policy"},
        },
        "retry_safe": True,
        "component": "policy",
        "call_id": "c1",
    }
    return made


def hostile() -> Iterator[Json]:
    """Rows whose every text tries to run something, to load something, or to hide something."""
    script = "<script>window.harmed = true</script>"
    img = '<img src=x onerror="window.harmed = true">'
    link = "[click](javascript:window.harmed=true) <a href='javascript:harm()'>x</a>"
    svg = "data:image/svg+xml;base64," + base64.b64encode(b"<svg onload='harm()'/>").decode()
    fake = "data:image/png;base64," + base64.b64encode(b"<svg onload='harm()'/>").decode()
    far = "https://example.com/track.png"
    hidden = "\x1b[31mred\x1b[0m \u202egnorw\u202c \u200bzero\x00 \ud800"
    parts: list[Json] = [{"type": "input_text", "text": f"{script} {img} {link} {hidden}"}]
    parts += [{"type": "input_image", "image_url": url} for url in (svg, fake, far)]
    output = [
        reasoning(f"{script}{img}"),
        {
            "type": "function_call",
            "name": f"tool{script}",
            "call_id": img,
            "arguments": json.dumps({"__proto__": {"polluted": 1}, script: img}),
        },
        {"type": "function_call", "name": "broken", "call_id": "c2", "arguments": '{"half": '},
        {"type": "function_call_output", "call_id": img, "output": f"{img}{hidden}"},
        {"type": f"other{script}", "html": img},
        text(f"{script}{link}{hidden}"),
    ]
    made = row("shop", 0, 9, [{"role": "user", "content": parts}], output, 0.5)
    made |= {"task_id": HOSTILE, "rollout_id": HOSTILE, "tags": {script: img}, "agent": script}
    made["verification"]["reason"] = f"{script}{hidden}"
    made["verification"]["evidence"] = {"__proto__": script, "html": img}
    yield made
    worse = failed(row("shop", 0, 10, script, output, 0.5))
    worse |= {"task_id": HOSTILE, "rollout_id": f"{HOSTILE}{img}", "environment": img}
    worse["failure"]["status"]["message"] = f"{script}{hidden}"
    yield worse
