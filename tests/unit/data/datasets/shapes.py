"""Rows in the columns of public data sets, made for these tests: none is of a data set.

`GOOD` has rows that become tasks, `BAD` rows that are refused, each with words of the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]


def _gsm8k(question: str, answer: str) -> Json:
    return {"question": question, "answer": answer}


def _math(problem: str, solution: str) -> Json:
    return {"problem": problem, "level": "Level 2", "type": "Algebra", "solution": solution}


def _math_500(number: int, problem: str, answer: str) -> Json:
    return {
        "problem": problem,
        "solution": f"It follows that \\boxed{{{answer}}}.",
        "answer": answer,
        "subject": "Algebra",
        "level": number % 5 + 1,
        "unique_id": f"test/algebra/{number}.json",
    }


def _arc(row_id: str, question: str, labels: str, texts: list[str], key: str) -> Json:
    choices = {"text": texts, "label": list(labels)}
    return {"id": row_id, "question": question, "choices": choices, "answerKey": key}


def _mmlu(question: str, choices: list[str], answer: Any, subject: str = "geography") -> Json:
    return {"question": question, "subject": subject, "choices": choices, "answer": answer}


def _mmlu_pro(number: int, question: str, options: list[str], index: int) -> Json:
    return {
        "question_id": number,
        "question": question,
        "options": options,
        "answer": "ABCDEFGHIJ"[index],
        "answer_index": index,
        "cot_content": "",
        "category": "physics",
        "src": "made",
    }


def _gpqa(question: str, right: str, *wrong: str) -> Json:
    row = {"Record ID": f"rec{len(question)}", "Question": question, "Correct Answer": right}
    return row | {f"Incorrect Answer {number}": text for number, text in enumerate(wrong, 1)}


def _humaneval(number: int, name: str, signature: str, body: str, asserts: Sequence[str]) -> Json:
    checks = "".join(f"    assert {one}\n" for one in asserts)
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": f'\n\ndef {name}{signature}:\n    """Made for a test."""\n',
        "canonical_solution": f"    {body}\n",
        "test": f"\n\nMETADATA = {{}}\n\n\ndef check(candidate):\n{checks}",
        "entry_point": name,
    }


def _mbpp(number: int, code: str, tests: list[str], setup: str = "") -> Json:
    return {
        "task_id": number,
        "text": "Write a function that does what its test shows.",
        "code": code,
        "test_list": tests,
        "test_setup_code": setup,
        "challenge_test_list": [],
    }


def _mbpp_sanitized(number: int, code: str, tests: list[str], *imports: str) -> Json:
    return {
        "source_file": "made.ipynb",
        "task_id": number,
        "prompt": "Write a function that does what its test shows.",
        "code": code,
        "test_imports": list(imports),
        "test_list": tests,
    }


def _ifeval(key: int, prompt: str, **instructions: Any) -> Json:
    """instructions: arguments, or None, by id, with `__` for the colon."""
    names = [name.replace("__", ":") for name in instructions]
    tables = {"num_words": None, "relation": None, "keywords": None}
    kwargs = [None if one is None else tables | one for one in instructions.values()]
    return {"key": key, "prompt": prompt, "instruction_id_list": names, "kwargs": kwargs}


def _hotpotqa(row_id: str, question: str, answer: Any, as_lists: bool = False) -> Json:
    titles, parts = ["Marby", "Oskeld"], [["Marby is a town. ", "It has a mill."], ["A river."]]
    lists = [list(pair) for pair in zip(titles, parts, strict=True)]
    return {
        "_id" if as_lists else "id": row_id,
        "question": question,
        "answer": answer,
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Marby", 0]] if as_lists else {"title": ["Marby"], "sent_id": [0]},
        "context": lists if as_lists else {"title": titles, "sentences": parts},
    }


def _xlam(number: int, query: str, tools: Any, answers: Any) -> Json:
    return {
        "id": number,
        "query": query,
        "tools": json.dumps(tools),
        "answers": json.dumps(answers),
    }


def _tool(name: str, **parameters: Any) -> Json:
    return {"name": name, "description": f"Calls {name}.", "parameters": parameters}


def _bfcl(row_id: str, question: Any, functions: list[Json], truth: Any = None) -> Json:
    row = {"id": row_id, "question": question, "function": functions}
    return row if truth is None else row | {"ground_truth": truth}


def _asked(text: str) -> list[list[Json]]:
    return [[{"role": "user", "content": text}]]


def _function(name: str, required: list[str], **properties: Any) -> Json:
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": f"Calls {name}.", "parameters": parameters}


_CITY = {"city": {"type": "str", "description": "which", "default": ""}}
_TRIP = _function(
    "travel.book",
    ["to", "seats"],
    to={"type": "string", "description": "where"},
    seats={"type": "integer"},
    price={"type": "float"},
    stops={"type": "array", "items": {"type": "string"}},
    extras={
        "type": "dict",
        "properties": {"meal": {"type": "string"}, "bags": {"type": "integer"}},
    },
)
_CODE = "def twice(x):\n    return 2 * x\n"

GOOD: Final[Mapping[str, list[Json]]] = {
    "gsm8k": [
        _gsm8k("Ann has 3 pens and buys 4. How many?", "3 + 4 = <<3+4=7>>7\n#### 7"),
        _gsm8k("A mill grinds 1,234 sacks. How many in all?", "All of them.\n#### 1,234"),
        _gsm8k("It is 2 degrees and gets 7 colder. How warm is it?", "2 - 7 = -5\n#### -5"),
        _gsm8k("Half of 5 litres?", "5 / 2 = 2.5\n#### 2.5"),
        _gsm8k("What share is 3 of 8?", "#### 3/8"),
        _gsm8k("What is 600 times 2000?", "Count zeros.\n####  1,200,000 \n"),
    ],
    "math": [
        _math("Halve $1$.", "So it is $\\boxed{\\frac{1}{2}}$."),
        _math("What is $3-10$?", "Now $\\boxed{5}$ is wrong, so $\\boxed{-7}$."),
        _math("A third of 2 is?", "We get \\fbox{$\\frac{2}{3}$}."),
        _math("How many sides has a cube?", "There are $\\boxed 6$ of them."),
        _math("Which pair?", "$\\boxed{(3, \\sqrt{2})}$"),
        _math("Which $x$?", "Hence $\\boxed{x \\in [-2, 7)}$."),
        _math("Who wins?", "That is $\\boxed{\\text{Evelyn}}$."),
        _math("What is $10^4 + 1$?", "$\\boxed{10,001}$"),
    ],
    "math-500": [
        _math_500(1, "Halve $3$.", "\\frac{3}{2}"),
        _math_500(2, "What is $2 - 9$?", "-7"),
        _math_500(3, "What are the roots of $x^2=4$ as a pair?", "(-2, 2)"),
        _math_500(4, "What is $10^6$?", "1,000,000"),
        _math_500(5, "Simplify $\\sqrt{8}$.", "2\\sqrt{2}"),
    ],
    "arc": [
        _arc("a1", "Which is a gas?", "ABCD", ["ice", "steam", "rock", "sand"], "B"),
        _arc("a2", "Which is hard?", "1234", ["milk", "air", "stone", "oil"], "3"),
        _arc("a3", "Which one floats?", "ABC", ["wood", "lead", "gold"], "A"),
        _arc("a4", "Which is a bird?", "ABCDE", ["cat", "cow", "eel", "ant", "owl"], "E"),
        _arc("a5", "How many legs has an ant?", "1234", ["2", "4", "6", "1"], "3"),
    ],
    "mmlu": [
        _mmlu("Which is a river?", ["Rhine", "Oslo", "Etna", "Malta"], 0),
        _mmlu("Which is a city?", ["Rhine", "Oslo", "Etna", "Malta"], 1),
        _mmlu("Which is a volcano?", ["Rhine", "Oslo", "Etna", "Malta"], 2),
        _mmlu("Which is an island?", ["Rhine", "Oslo", "Etna", "Malta"], 3),
        _mmlu("What is 3 minus 4?", ["1", "-1", "0", "7"], 1, ""),
    ],
    "mmlu-pro": [
        _mmlu_pro(1, "Which of ten?", [f"the value {n}" for n in range(10)], 9),
        _mmlu_pro(2, "Which of three?", ["mass", "charge", "spin"], 0),
        _mmlu_pro(3, "Which of five?", ["1", "10", "100", "0.1", "0.01"], 3),
        _mmlu_pro(4, "Which of four?", ["up", "down", "left", "right"], 2),
        _mmlu_pro(5, "Which of two?", ["yes", "no"], 1),
    ],
    "gpqa": [
        _gpqa("Which energy has the made-up level?", "10^-4 eV\n", "10^-8 eV", "10^-9 eV", "1 eV"),
        _gpqa("Which is the longest?", "a mile", "a metre", "a foot", "an inch"),
        _gpqa("Which sign?", "-1", "1", "0", "i"),
        _gpqa("Which order,\nby mass?", "a, b, c", "b, a, c", "c, a, b", "c, b, a"),
        _gpqa('Which is "right"?', "1/2", "1/3", "1/4", "2"),
        _gpqa("Which is even?", "4", "3", "5", "7"),
    ],
    "humaneval": [
        _humaneval(900, "twice", "(x: int) -> int", "return 2 * x", ["candidate(4) == 8"]),
        _humaneval(901, "both", "(a, b)", "return (a, b)", ["candidate(1, 2) == (1, 2)"]),
        _humaneval(902, "words", "(s)", "return s.split()", ["candidate('a b') == ['a', 'b']"]),
        _humaneval(903, "half", "(x)", "return x / 2", ["abs(candidate(1.0) - 0.5) < 1e-6"]),
        _humaneval(
            904,
            "none",
            "(x)",
            "return None if x else 1",
            ["candidate(1) is None", "candidate(0) == 1"],
        ),
    ],
    "mbpp": [
        _mbpp(11, _CODE, ["assert twice(2) == 4", "assert twice(-3) == -6"]),
        _mbpp(12, "def sum(a, b):\r\n  return a + b", ["assert sum(10, 15) == 25"]),
        _mbpp(
            13,
            "import math\ndef root(x):\n    return math.sqrt(x)",
            ["assert math.isclose(root(2), 1.41421356, rel_tol=1e-6)"],
            "import math",
        ),
        _mbpp(
            14, "def part(s):\n    return s.split('\\n')", ["assert part('''a\nb''') == ['a', 'b']"]
        ),
        _mbpp(
            15,
            "def help_me(x):\n    return x\ndef main_one(x):\n    return help_me(x) + [1]",
            ["assert main_one([0]) == [0, 1], 'message'", "assert set(main_one([1])) == {1}"],
        ),
        _mbpp(16, "pair = lambda x: (x, x)", ["assert all(pair(n) == (n, n) for n in range(3))"]),
    ],
    "mbpp-sanitized": [
        _mbpp_sanitized(21, _CODE, ["assert twice(2) == 4"]),
        _mbpp_sanitized(
            22,
            "import math\ndef up(x):\n    return math.ceil(x)",
            ["assert up(1.5) == math.ceil(1.2)"],
            "import math",
        ),
        _mbpp_sanitized(23, "def low(s):\n    return s.lower()", ["assert low('AbC') == 'abc'"]),
        _mbpp_sanitized(
            24,
            "def flat(x):\n    return [b for a in x for b in a]",
            ["assert flat([[1], [2, 3]]) == [1, 2, 3]"],
        ),
        _mbpp_sanitized(25, "def neg(x):\n    return -x", ["assert neg(1.5) == -1.5"]),
    ],
    "ifeval": [
        _ifeval(1, "Say something without commas.", punctuation__no_comma=None),
        _ifeval(2, "Use the word mill.", keywords__existence={"keywords": ["mill"]}),
        _ifeval(
            3,
            "Answer in less than 9 words, and use no commas.",
            length_constraints__number_words={"num_words": 9, "relation": "less than"},
            punctuation__no_comma={},
        ),
        _ifeval(4, "Put all of it into double quotes.", startend__quotation={}),
        _ifeval(5, "Write small letters only.", change_case__english_lowercase={}),
    ],
    "hotpotqa": [
        _hotpotqa("h1", "Which town has a mill?", "Marby"),
        _hotpotqa("h2", "Is Oskeld a river?", "yes"),
        _hotpotqa("h3", "How many arches?", "1,200", as_lists=True),
        _hotpotqa("h4", "When was it built?", "14 March 1902", as_lists=True),
        _hotpotqa(
            "h5",
            "What is it called in full?",
            "The Old and Very Long Name of the Mill by the River of the Town at Hand",
        ),
    ],
    "xlam": [
        _xlam(
            1,
            "Weather in Lima?",
            [_tool("weather", **_CITY)],
            [{"name": "weather", "arguments": {"city": "Lima"}}],
        ),
        _xlam(
            2,
            "Weather in Oslo and Lima?",
            [_tool("weather", **_CITY)],
            [{"name": "weather", "arguments": {"city": city}} for city in ("Oslo", "Lima")],
        ),
        _xlam(
            3,
            "Add -1 and 2.5.",
            [_tool("math.add", values={"type": "List[float]", "description": "what"})],
            [{"name": "math.add", "arguments": {"values": [-1, 2.5]}}],
        ),
        _xlam(
            4,
            "Is it on?",
            [_tool("lamp", on={"type": "bool, optional"}), _tool("fan")],
            [{"name": "lamp", "arguments": {"on": True}}],
        ),
        _xlam(
            5,
            "Start.",
            [_tool("start", speed={"type": "int", "default": 3})],
            [{"name": "start", "arguments": {}}],
        ),
        _xlam(
            6,
            "Count to 4.",
            [
                {
                    "name": "count",
                    "parameters": {
                        "type": "object",
                        "properties": {"to": {"type": "integer"}},
                        "required": ["to"],
                    },
                }
            ],
            [{"name": "count", "arguments": {"to": 4}}],
        ),
    ],
    "bfcl": [
        _bfcl(
            "simple_1",
            _asked("Two seats to Lima."),
            [_TRIP],
            [{"travel.book": {"to": ["Lima"], "seats": [2]}}],
        ),
        _bfcl(
            "simple_2",
            _asked("Three seats to New York, at 9.5."),
            [_TRIP],
            [{"travel.book": {"to": ["New York", "NYC"], "seats": [3], "price": [9.5, ""]}}],
        ),
        _bfcl(
            "parallel_3",
            "One seat to Oslo and one to Rome.",
            [_TRIP],
            [{"travel.book": {"to": [city], "seats": [1]}} for city in ("Oslo", "Rome")],
        ),
        _bfcl(
            "multiple_4",
            _asked("Two seats to Bari by Rome."),
            [_TRIP, _function("stop", [])],
            [{"travel.book": {"to": ["Bari"], "seats": [2], "stops": [["Rome"], ["rome"]]}}],
        ),
        _bfcl(
            "live_simple_5-0-0",
            _asked("A seat to Pisa with a meal."),
            [_TRIP],
            [
                {
                    "travel.book": {
                        "to": ["Pisa"],
                        "seats": [1],
                        "extras": [{"meal": ["fish", "meat"], "bags": [0, ""]}],
                    }
                }
            ],
        ),
    ],
    "bfcl-irrelevance": [
        _bfcl("irrelevance_1", _asked("How old is the moon?"), [_TRIP]),
        _bfcl("irrelevance_2", _asked("Who wrote it?"), [_function("stop", [])]),
        _bfcl("live_irrelevance_3-0-0", "Say hello.", [_TRIP, _function("stop", [])]),
        _bfcl("irrelevance_4", [{"role": "user", "content": "Why?"}], [_TRIP]),
        _bfcl("irrelevance_5", _asked("1 + 1?"), [_TRIP]),
    ],
}

BAD: Final[Sequence[tuple[str, Json, str]]] = [
    ("gsm8k", _gsm8k("How many?", "Seven of them."), "answer: does not end with a line '#### ANS"),
    ("gsm8k", _gsm8k("How many?", "7\n####"), "answer: does not end with a line"),
    ("gsm8k", _gsm8k(" ", "#### 7"), "question: is empty in rows of GSM8K"),
    ("gsm8k", {"question": "How many?", "answer": None}, "answer: is missing in rows of GSM8K"),
    ("gsm8k", {"question": "How many?", "answer": 7}, "answer: must be a text in rows of GSM8K"),
    ("math", _math("Which?", "It is 7."), r"solution: has no \\boxed"),
    ("math", _math("Which?", "It is \\boxed{}."), "solution: .* empty or not closed"),
    ("math", _math("Which?", "It is \\boxed{7"), "solution: .* empty or not closed"),
    ("math", _math("Which?", "\\boxed{we do not know which one it is}"), "expected_answer"),
    ("math-500", _math_500(1, "Which?", " "), "answer: is empty"),
    ("arc", _arc("b1", "Which?", "ABC", ["a", "b", "c"], "D"), "answerKey: is 'D', .* A, B, C"),
    ("arc", _arc("b2", "Which?", "AB", ["a", "b", "c"], "A"), "2 labels for 3 texts"),
    ("arc", _arc("b3", "Which?", "AAB", ["a", "b", "c"], "A"), "choices: has the same label twice"),
    ("arc", _arc("b4", "Which?", "ABC", ["a", "b", "a"], "A"), "two equal choices"),
    ("mmlu", _mmlu("Which?", ["a", "b"], 2), "answer: is 2, which is out of range"),
    ("mmlu", _mmlu("Which?", ["a", "b"], -1), "answer: is -1"),
    ("mmlu", _mmlu("Which?", ["a"], 0), "choices: has 1 choices"),
    ("mmlu", _mmlu("Which?", ["a", " "], 0), "choices: has a choice without a text"),
    ("mmlu", _mmlu("Which?", ["a", "b"], "A"), "answer: must be a whole number"),
    ("mmlu-pro", _mmlu_pro(1, "Which?", ["a", "b"], 1) | {"answer": "A"}, "index of choice B, but"),
    ("gpqa", _gpqa("Which?", "1", "1", "2", "3"), "two equal choices"),
    ("gpqa", _gpqa("Which?", "1", "", "2", "3"), "Incorrect Answer 1: is empty"),
    ("humaneval", _humaneval(1, "f", "()", "pass", []) | {"test": "x = 1"}, "test: does not"),
    ("humaneval", _humaneval(1, "f", "()", "pass", []) | {"entry_point": "a b"}, "entry_point: "),
    ("mbpp", _mbpp(1, _CODE, []), "test_list: is empty; at least one test is required"),
    ("mbpp", _mbpp(1, _CODE, ["twice(2)"]), "test_list: has no assertion"),
    ("mbpp", _mbpp(1, _CODE, ["assert thrice(2) == 6"]), "tests call none of the solution's"),
    ("mbpp", _mbpp(1, _CODE, ["assert twice(2 =="]), "test_list: a test is not Python"),
    ("mbpp", _mbpp(1, "def twice(:", ["assert twice(2) == 4"]), "the solution is not Python"),
    ("mbpp", _mbpp(1, "class P: pass\ndef f(p): return 1", ["assert f(P()) == 1"]), "uses P, "),
    ("ifeval", _ifeval(1, "Dance.", made__up={}), "instruction_id_list"),
    ("ifeval", _ifeval(1, "Say it.", keywords__existence={}), "keywords"),
    ("ifeval", _ifeval(1, "Say it.") | {"kwargs": ["x"]}, "kwargs: must be a list of objects"),
    ("hotpotqa", _hotpotqa("b1", "Which?", None), "answer: is missing"),
    ("hotpotqa", _hotpotqa("b2", "Which?", "a") | {"context": []}, "context: has no paragraphs"),
    ("hotpotqa", _hotpotqa("b3", "Which?", "a") | {"context": [["t"]]}, "must hold titles"),
    ("xlam", _xlam(1, "?", [_tool("f")], []), "answers: has no calls"),
    ("xlam", _xlam(1, "?", [], [{"name": "f", "arguments": {}}]), "tools: has no functions"),
    ("xlam", _xlam(1, "?", [_tool("f")], [{"name": "g"}]), "answers: calls 'g', which is not one"),
    ("xlam", _xlam(1, "?", [_tool("f")], [{"name": "f", "arguments": {"x": 1}}]), "with 'x', "),
    ("xlam", _xlam(1, "?", [_tool("a.b"), _tool("a_b", x={"type": "int"})], []), "two functions"),
    ("xlam", _xlam(1, "?", [_tool("f")], []) | {"answers": "[{"}, "answers: is not JSON"),
    ("bfcl", _bfcl("simple_1", [_asked("a")[0], _asked("b")[0]], [_TRIP], [{"travel.book": {}}]),
     "question: has 2 turns"),
    ("bfcl", _bfcl("simple_java_1", _asked("a"), [_TRIP], [{"travel.book": {}}]), "category java"),
    ("bfcl", _bfcl("simple_1", _asked("a"), [_TRIP], [{"travel.walk": {}}]), "ground_truth: calls"),
    ("bfcl", _bfcl("simple_1", _asked("a"), [_TRIP], [{"travel.book": {"to": []}}]), "list of its"),
    ("bfcl", _bfcl("simple_1", _asked("a"), [_TRIP], []), "ground_truth: is empty"),
]  # fmt: skip

REFUSED: Final[Mapping[str, list[Json]]] = {
    "bfcl-questions": [_bfcl("simple_1", _asked("Two seats to Lima."), [_TRIP])],
    "bfcl-executable": [_bfcl("exec_simple_1", _asked("1 + 1?"), [_TRIP], ["add(a=1, b=1)"])],
    "bfcl-multi-turn": [
        {
            "id": "multi_turn_base_1",
            "question": [*_asked("a"), *_asked("b")],
            "initial_config": {},
            "path": ["A.b"],
            "involved_classes": ["A"],
        }
    ],
    "swe-bench": [
        {
            "repo": "mill/grind",
            "instance_id": "mill__grind-1",
            "base_commit": "0" * 40,
            "patch": "",
            "test_patch": "",
            "problem_statement": "It stops.",
            "hints_text": "",
            "version": "1",
            "FAIL_TO_PASS": "[]",
            "PASS_TO_PASS": "[]",
        }
    ],
    "tau-bench": [
        {"annotator": 0, "user_id": "u1", "instruction": "Return it.", "actions": [], "outputs": []}
    ],
    "tau2-bench": [
        {"id": "0", "user_scenario": {}, "initial_state": None, "evaluation_criteria": {}}
    ],
}

# The right answers of `GOOD`, written down by hand: what is compared with, or a choice's text.
RIGHT: Final[Mapping[str, list[str]]] = {
    "gsm8k": ["7", "1234", "-5", "2.5", "3/8", "1200000"],
    "math": [
        "\\frac{1}{2}",
        "-7",
        "$\\frac{2}{3}$",
        "6",
        "(3, \\sqrt{2})",
        "x \\in [-2, 7)",
        "\\text{Evelyn}",
        "10001",
    ],
    "math-500": ["\\frac{3}{2}", "-7", "(-2, 2)", "1000000", "2\\sqrt{2}"],
    "arc": ["steam", "stone", "wood", "owl", "6"],
    "mmlu": ["Rhine", "Oslo", "Etna", "Malta", "-1"],
    "mmlu-pro": ["the value 9", "mass", "0.1", "left", "no"],
    "gpqa": ["10^-4 eV", "a mile", "-1", "a, b, c", "1/2", "4"],
    "hotpotqa": [
        "Marby",
        "yes",
        "1200",
        "14 March 1902",
        "The Old and Very Long Name of the Mill by the River of the Town at Hand",
    ],
}
CALLS: Final[Mapping[str, list[list[Json]]]] = {
    "xlam": [
        [{"name": "weather", "arguments": {"city": "Lima"}}],
        [{"name": "weather", "arguments": {"city": city}} for city in ("Oslo", "Lima")],
        [{"name": "math_add", "arguments": {"values": [-1, 2.5]}}],
        [{"name": "lamp", "arguments": {"on": True}}],
        [{"name": "start", "arguments": {}}],
        [{"name": "count", "arguments": {"to": 4}}],
    ],
    "bfcl": [
        [{"name": "travel_book", "arguments": {"to": "Lima", "seats": 2}}],
        [
            {
                "name": "travel_book",
                "arguments": {"to": "New York", "seats": 3, "price": 9.5},
                "accepted": {"to": ["New York", "NYC"]},
                "optional": ["price"],
            }
        ],
        [
            {"name": "travel_book", "arguments": {"to": city, "seats": 1}}
            for city in ("Oslo", "Rome")
        ],
        [
            {
                "name": "travel_book",
                "arguments": {"to": "Bari", "seats": 2, "stops": ["Rome"]},
                "accepted": {"stops": [["Rome"], ["rome"]]},
            }
        ],
        [
            {
                "name": "travel_book",
                "arguments": {"to": "Pisa", "seats": 1, "extras": {"meal": "fish", "bags": 0}},
                "accepted": {
                    "extras": [
                        {"meal": "fish", "bags": 0},
                        {"meal": "fish"},
                        {"meal": "meat", "bags": 0},
                        {"meal": "meat"},
                    ]
                },
            }
        ],
    ],
    "bfcl-irrelevance": [[] for _ in range(5)],
}
