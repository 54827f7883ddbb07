r"""Makes cases/structured_outputs.jsonl.

What fits is written here by hand; for patterns, the `RegExp` of Node says which texts match.
Run it as `.venv/bin/python -m tests.verdicts.make_structured_outputs`; it needs `node`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "integer"}}}
TEXT = {"type": "object", "properties": {"d": {"type": "string"}}}
NUMBER = {"type": "object", "properties": {"n": {"type": "number"}}}
INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}}
BOOLEAN = {"type": "object", "properties": {"b": {"type": "boolean"}}}
NULL = {"type": "object", "properties": {"d": {"type": "null"}}}
RIVERS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "length_km": {"type": "number"}},
        "required": ["name", "length_km"],
    },
}
REFERRED = {
    "type": "array",
    "items": {"$ref": "#/$defs/row"},
    "$defs": {
        "row": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        }
    },
}
NULLABLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "n": {"type": ["integer", "null"]}},
    },
}
ANY_TABLE = {"type": "array"}
CHAIR = {
    "type": "object",
    "properties": {
        "chair": {
            "type": "object",
            "properties": {"legs": {"type": "integer"}, "wooden": {"type": "boolean"}},
        }
    },
}
LISTED = {
    "type": "object",
    "properties": {
        "r": {
            "type": "object",
            "properties": {
                "size": {"enum": [1, 2, 3]},
                "note": {"type": ["string", "null"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}
PEOPLE = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        }
    },
}
ALL_OF = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "allOf": [{"properties": {"b": {"type": "string"}}}],
}
REF_BESIDE = {
    "$ref": "#/$defs/base",
    "properties": {"b": {"type": "string"}},
    "$defs": {"base": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
TWO_BY_REF = {"$ref": "#/$defs/p", "$defs": {"p": PERSON}}
EITHER = {
    "type": "object",
    "oneOf": [
        {"properties": {"a": {"type": "integer"}}},
        {"properties": {"b": {"type": "string"}}},
    ],
}
UNION = {
    "type": "object",
    "properties": {"kind": {"type": "string"}},
    "oneOf": [
        {"properties": {"r": {"type": "number"}}},
        {"properties": {"r": {"type": "number"}, "h": {"type": "number"}}},
    ],
}
REF_UNION = {
    "type": "object",
    "properties": {"shape": {"anyOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/s"}]}},
    "$defs": {
        "c": {"type": "object", "properties": {"r": {"type": "number"}}},
        "s": {"type": "object", "properties": {"w": {"type": "number"}, "h": {"type": "number"}}},
    },
}
CONDITION = {
    "type": "object",
    "properties": {"paid": {"type": "boolean"}},
    "if": {"properties": {"paid": {"const": True}}},
    "then": {"properties": {"sum": {"type": "number"}}},
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }
    },
}
DEPENDENT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "patternProperties": {"^[a-z]+$": {}},
    "dependencies": {"card": ["address"], "gift": {"required": ["note"]}},
}
TUPLE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "array",
    "items": [{"type": "string"}, {"type": "integer"}],
    "additionalItems": False,
}
ABOVE = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "type": "number",
    "minimum": 0,
    "exclusiveMinimum": True,
}
REF_ALONE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"x": {"$ref": "#/definitions/t", "minLength": 5}},
    "definitions": {"t": {"type": "string"}},
}

# Format, schema, answer, whether it fits (None: no verdict), why. `+`: a right answer in other clothes.
ANSWERS: list[tuple[str, Any, str, bool | None, str]] = [
    ("json", PERSON, '{"name": "Ada", "born": 1815}', True, "fits"),
    ("json", PERSON, '{"born": 1815, "name": "Ada"}', True, "+another order of keys"),
    ("json", PERSON, '\n{\n  "name": "Ada",\n  "born": 1815\n}\n', True, "+spaces and lines"),
    ("json", PERSON, '{"name":"Ada","born":1815.0}', True, "+a whole float is an integer"),
    ("json", PERSON, '{"name":"\\u0041da","born":1815}', True, "+an escaped letter"),
    ("json", PERSON, '{"name":"Ada","born":18.15e2}', True, "+a power of ten"),
    ("json", PERSON, '{"name": "Ada"}', False, "a key is missing"),
    ("json", PERSON, '{"name": "Ada", "born": 1815, "x": 1}', False, "a key too many"),
    ("json", PERSON, '{"name": "Ada", "born": "1815"}', False, "a number as text"),
    ("json", PERSON, '{"name": "Ada", "born": 1815.5}', False, "not an integer"),
    ("json", PERSON, '{"born": "x", "name": "Ada", "born": 3}', False, "a key comes twice"),
    ("json", PERSON, '{"name": "x", "name": "Ada", "born": 3}', False, "a key comes twice"),
    ("json", PERSON, '{"name": "Ada", "born": 3, "born": 3}', False, "a key comes twice"),
    ("json", {"type": "object", "properties": {"p": PERSON}}, '{"p": {"name": "A", "born": 1, "born": 2}}', False, "a key comes twice below"),
    ("json", PERSON, '[{"name": "Ada", "born": 1815}]', False, "a list of it"),
    ("json", PERSON, "{'name': 'Ada', 'born': 1815}", False, "other quotes are not JSON"),
    ("json", PERSON, '{"name": "Ada", "born": 1815,}', False, "a comma too many"),
    ("json", PERSON, '```json\n{"name": "Ada", "born": 1815}\n```', False, "a fence is not JSON"),
    ("json", PERSON, 'Here: {"name": "Ada", "born": 1815}', False, "prose is not JSON"),
    ("json", PERSON, '{"name": "Ada", "born": 1815} // done', False, "a comment is not JSON"),
    ("json", PERSON, '{"name": "Ada", "born": 0x1F}', False, "not a number of JSON"),
    ("json", PERSON, '{"name": "Ada", "born": 01815}', False, "not a number of JSON"),
    ("json", PERSON, '{"name": "Ada", "born": ١٨}', False, "digits of another script"),
    ("json", NUMBER, '{"n": NaN}', False, "not a number of JSON"),
    ("json", NUMBER, '{"n": Infinity}', False, "not a number of JSON"),
    ("json", PERSON, "", False, "nothing"), ("json", PERSON, "{}", False, "an empty object"),
    ("json", PERSON, "null", False, "null"), ("json", PERSON, "true", False, "true"),
    ("json", PERSON, "I'm sorry, I can't do that.", False, "a refusal"),
    ("json", ALL_OF, '{"a": 1, "b": "x"}', True, "properties beside allOf"),
    ("json", ALL_OF, '{"b": "x", "a": 1}', True, "+another order"),
    ("json", ALL_OF, '{"a": 1}', False, "a property of allOf is missing"),
    ("json", ALL_OF, '{"b": "x"}', False, "a property is missing"),
    ("json", ALL_OF, '{"a": 1, "b": "x", "c": 2}', False, "a key too many"),
    ("json", ALL_OF, '{"a": 1, "b": 2}', False, "another type in allOf"),
    ("json", REF_BESIDE, '{"a": 1, "b": "x"}', True, "properties beside $ref"),
    ("json", REF_BESIDE, '{"a": 1}', False, "a property is missing"),
    ("json", REF_BESIDE, '{"a": 1, "b": "x", "c": 1}', False, "a key too many"),
    ("json", UNION, '{"kind": "disc", "r": 1}', True, "the first of two"),
    ("json", UNION, '{"kind": "can", "r": 1, "h": 2}', True, "the second of two, which has the first's"),
    ("json", UNION, '{"kind": "can", "h": 2}', False, "neither of two"),
    ("json", UNION, '{"r": 1}', False, "a property beside oneOf is missing"),
    ("json", UNION, '{"kind": "disc", "r": 1, "x": 0}', False, "a key too many"),
    ("json", REF_UNION, '{"shape": {"r": 1}}', True, "the first of two"),
    ("json", REF_UNION, '{"shape": {"w": 1, "h": 2}}', True, "the second of two"),
    ("json", REF_UNION, '{"shape": {"w": 1}}', False, "neither of two"),
    ("json", REF_UNION, '{"shape": {"r": 1, "w": 1, "h": 2}}', False, "both of two"),
    ("json", REF_UNION, '{"shape": {}}', False, "neither of two"),
    ("json", CONDITION, '{"paid": true, "sum": 5}', True, "what the condition asks for"),
    ("json", CONDITION, '{"paid": true}', False, "what the condition asks for is missing"),
    ("json", CONDITION, '{"paid": false}', True, "the condition does not hold"),
    ("json", CONDITION, '{"paid": false, "x": 5}', False, "a key too many"),
    ("json", TREE, '{"v": 1, "kids": [{"v": 2, "kids": []}]}', True, "a schema that refers to itself"),
    ("json", TREE, '{"v": 1, "kids": [{"v": 2}]}', False, "a key is missing below"),
    ("json", TREE, '{"v": 1, "kids": [{"v": 2, "kids": [], "x": 0}]}', False, "a key too many below"),
    ("json", DEPENDENT, '{"card": 1, "address": 2}', True, "draft 7's dependencies"),
    ("json", DEPENDENT, '{"address": 2}', True, "draft 7's dependencies"),
    ("json", DEPENDENT, '{"card": 1}', False, "draft 7's dependencies"),
    ("json", DEPENDENT, '{"gift": 1, "note": 2}', True, "draft 7's dependencies"),
    ("json", DEPENDENT, '{"gift": 1}', False, "draft 7's dependencies"),
    ("json", TUPLE, '["a", 1]', True, "draft 7's list of items"),
    ("json", TUPLE, '["a", "1"]', False, "draft 7's list of items"),
    ("json", TUPLE, '["a", 1, 2]', False, "draft 7's additionalItems"),
    ("json", ABOVE, "1", True, "draft 4's exclusiveMinimum"),
    ("json", ABOVE, "0", False, "draft 4's exclusiveMinimum"),
    ("json", REF_ALONE, '{"x": "ab"}', True, "in draft 7 nothing beside a $ref counts"),
    ("json", REF_ALONE, '{"x": 1}', False, "what is referred to counts"),
    ("json", {"type": "string", "pattern": "("}, '"x"', None, "not a pattern"),
    ("json", {"type": "string", "pattern": "(?i)x"}, '"x"', None, "not a pattern of ECMA 262"),
    ("json", {"type": "string", "pattern": "(?P<n>x)"}, '"x"', None, "not a pattern of ECMA 262"),
    ("json", {"$ref": "#/none"}, '"x"', None, "a reference to nothing"),
    ("csv", PERSON, "name,born\nAda,1815", None, "a table is not an object"),
    ("xml", RIVERS, "<a/>", None, "a document is not a list"),
    ("toml", RIVERS, "a = 1", None, "a document is not a list"),
    ("yaml", TEXT, "d: 1749-08-28", True, "a date is text in YAML 1.2"),
    ("yaml", TEXT, "d: 2001-12-14t21:59:43.10-05:00", True, "a time is text in YAML 1.2"),
    ("yaml", TEXT, 'd: "1749-08-28"', True, "+in quotes"),
    ("yaml", TEXT, "{d: '1749-08-28'}", True, "+in braces"),
    ("yaml", TEXT, "---\nd: x\n...", True, "+marks of a document"),
    ("yaml", TEXT, "d: >\n  folded\n  text", True, "+folded text"),
    ("yaml", TEXT, "# a comment\nd: x", True, "+a comment"),
    ("yaml", TEXT, "{\"d\": \"x\"}", True, "+JSON is YAML"),
    *[("yaml", TEXT, f"d: {word}", True, f"{word} is text in YAML 1.2") for word in ("no", "yes", "on", "off", "No", "YES", "y", "n", "1_000", "12:30:45", "0b11", "=", "<<", "190:20", "nan", "inf", "1e", "0o9", "tRUE", "nULL")],
    *[("yaml", TEXT, f"d: {word}", False, f"{word} is not text") for word in ("true", "False", "1", "1.5", "null", "~", "", "1e3", "0x1F", "012", ".5", "-7")],
    *[("yaml", INTEGER, f"n: {word}", True, f"{word} is an integer") for word in ("012", "0o14", "0x1F", "-7", "+7", "0", "12")],
    *[("yaml", INTEGER, f"n: {word}", False, f"{word} is not an integer") for word in ("1_000", "0b11", "12:30", "1.5", "yes", "'12'", "0o9", "١٢", "")],
    *[("yaml", NUMBER, f"n: {word}", True, f"{word} is a number") for word in ("1e3", "1E+3", ".5", "5.", "-0.5", "12")],
    *[("yaml", NUMBER, f"n: {word}", False, f"{word} is not a number of JSON") for word in (".nan", ".inf", "-.Inf", "1_0.5", "e3")],
    *[("yaml", BOOLEAN, f"b: {word}", True, f"{word} is a boolean") for word in ("true", "True", "FALSE")],
    *[("yaml", BOOLEAN, f"b: {word}", False, f"{word} is not a boolean") for word in ("yes", "on", "no", "y", "1", "'true'", "tRUE")],
    *[("yaml", NULL, f"d: {word}", True, "null") for word in ("null", "~", "Null", "")],
    ("yaml", PERSON, "name: Ada\nborn: 1815", True, "fits"),
    ("yaml", PERSON, "born: 1815\nname: Ada", True, "+another order"),
    ("yaml", PERSON, "name: x\nname: Ada\nborn: 1815", False, "a key comes twice"),
    ("yaml", PERSON, "name: Ada\nborn: 1815\nborn: 1816", False, "a key comes twice"),
    ("yaml", PERSON, "name: Ada\nborn: '1815'", False, "a number as text"),
    ("yaml", PERSON, "```yaml\nname: Ada\nborn: 1815\n```", False, "a fence is not YAML"),
    ("yaml", PERSON, "I'm sorry, I can't do that.", False, "a refusal"),
    ("yaml", PERSON, "name: Ada\n---\nborn: 1815", False, "two documents"),
    ("yaml", {"type": "object", "properties": {"1": {"type": "string"}, "no": {"type": "string"}}}, "1: a\nno: b", True, "keys are texts"),
    ("csv", RIVERS, "name,length_km\nNile,6650\nAmazon,6400", True, "fits"),
    ("csv", RIVERS, "length_km,name\n6650,Nile", True, "+another order of columns"),
    ("csv", RIVERS, "name,length_km\r\nNile,6650\r\n", True, "+other line breaks"),
    ("csv", RIVERS, '"name","length_km"\n"Nile","6650"', True, "+quotes"),
    ("csv", RIVERS, "name,length_km\nNile,6650.5", True, "a decimal"),
    ("csv", RIVERS, "name,length_km\nNile,6.65e3", True, "+a power of ten"),
    ("csv", RIVERS, 'name,length_km\n"Nile, the",6650', True, "a comma in quotes"),
    ("csv", RIVERS, "name,length_km", True, "a table without rows"),
    ("csv", RIVERS, "I'm sorry, I can't do that.", False, "prose is not the table"),
    ("csv", RIVERS, "Here you are", False, "prose is not the table"),
    ("csv", RIVERS, "I don't know", False, "prose is not the table"),
    ("csv", RIVERS, "name", False, "a column is missing"),
    ("csv", RIVERS, "name,length", False, "another column"),
    ("csv", RIVERS, "name,length_km,sea", False, "a column too many"),
    ("csv", RIVERS, "name,length_km,sea\nNile,6650,x", False, "a column too many"),
    ("csv", RIVERS, "name,name,length_km\nNile,Nile,6650", False, "a column comes twice"),
    ("csv", RIVERS, "Nile,6650\nAmazon,6400", False, "no header"),
    ("csv", RIVERS, "name,length_km\nNile", False, "a field is missing"),
    ("csv", RIVERS, "name,length_km\nNile,6650,1", False, "a field too many"),
    ("csv", RIVERS, "name,length_km\nNile,long", False, "not a number"),
    ("csv", RIVERS, "name,length_km\nNile,٦٦٥٠", False, "digits of another script"),
    ("csv", RIVERS, "name,length_km\nNile,６６５０", False, "full-width digits"),
    ("csv", RIVERS, "name,length_km\nNile,6_650", False, "an underscore is not a digit"),
    ("csv", RIVERS, "name,length_km\nNile,nan", False, "not a number"),
    ("csv", RIVERS, "name,length_km\nNile,", False, "an empty cell is not a number"),
    ("csv", RIVERS, "name;length_km\nNile;6650", False, "another separator"),
    ("csv", RIVERS, "name,length_km\n\"Nile\"x,6650", False, "text behind a quote"),
    ("csv", RIVERS, "```csv\nname,length_km\nNile,6650\n```", False, "a fence is not CSV"),
    ("csv", RIVERS, "Rivers:\nname,length_km\nNile,6650", False, "prose before the table"),
    ("csv", REFERRED, "name,n\nNile,1", True, "columns that are referred to"),
    ("csv", REFERRED, "name,n\nNile,x", False, "columns that are referred to"),
    ("csv", REFERRED, "Here you are", False, "prose is not the table"),
    ("csv", NULLABLE, "a,n\nx,", True, "an empty cell is null where it may be"),
    ("csv", NULLABLE, "a,n\nx,5", True, "a number where it may be null"),
    ("csv", NULLABLE, "a,n\nx", False, "a field is missing"),
    ("csv", NULLABLE, "a,n\nx,y", False, "neither a number nor null"),
    ("csv", ANY_TABLE, "I'm sorry, I can't do that.", False, "prose is not a table"),
    ("xml", CHAIR, "<chair><legs>4</legs><wooden>true</wooden></chair>", True, "fits"),
    ("xml", CHAIR, "<chair><wooden>true</wooden><legs>4</legs></chair>", True, "+another order"),
    ("xml", CHAIR, "<?xml version=\"1.0\"?>\n<chair>\n <legs> 4 </legs><wooden>false</wooden>\n</chair>", True, "+a declaration and spaces"),
    ("xml", CHAIR, "<chair><!-- --><legs>4</legs><wooden>true</wooden></chair>", True, "+a comment"),
    ("xml", CHAIR, "<chair><legs>4.5</legs><wooden>true</wooden></chair>", False, "not an integer"),
    ("xml", CHAIR, "<chair><legs>٤</legs><wooden>true</wooden></chair>", False, "digits of another script"),
    ("xml", CHAIR, "<chair><legs>1_0</legs><wooden>true</wooden></chair>", False, "an underscore is not a digit"),
    ("xml", CHAIR, "<chair><legs>4</legs><wooden>yes</wooden></chair>", False, "not a boolean"),
    ("xml", CHAIR, "<chair><legs>4</legs></chair>", False, "an element is missing"),
    ("xml", CHAIR, "<chair><legs>4</legs><legs>5</legs><wooden>true</wooden></chair>", False, "an element twice"),
    ("xml", CHAIR, "<chair legs='4' wooden='true'/>", False, "attributes are not elements"),
    ("xml", CHAIR, "<legs>4</legs><wooden>true</wooden>", False, "two roots"),
    ("xml", CHAIR, "I'm sorry", False, "a refusal"),
    ("xml", LISTED, "<r><size>2</size><note/><tags><tag>a</tag><tag>b</tag></tags></r>", True, "listed numbers and a list"),
    ("xml", LISTED, "<r><size>2</size><note>x</note><tags><tag>a</tag></tags></r>", True, "a list of one"),
    ("xml", LISTED, "<r><size>4</size><note/><tags/></r>", False, "not a listed number"),
    ("xml", PEOPLE, "<people><person><name>A</name></person><person><name>B</name></person></people>", True, "a list of objects"),
    ("xml", PEOPLE, "<people><name>A</name></people>", True, "+a list of one object without an element of its own"),
    ("xml", PEOPLE, "<people><person><age>1</age></person></people>", False, "another object"),
    ("xml", PERSON, "<person><name>Ada</name><born>1815</born></person>", None, "two keys are wanted, a document has one root"),
    ("xml", TWO_BY_REF, "<a>1</a>", None, "two keys are wanted behind a $ref"),
    ("xml", ALL_OF, "<a>1</a>", None, "two keys are wanted by allOf"),
    ("xml", UNION, "<kind>x</kind>", None, "two keys are wanted by each choice"),
    ("xml", {"type": "object", "minProperties": 2}, "<a/>", None, "two keys are wanted"),
    ("xml", {"type": "object", "additionalProperties": False}, "<a/>", None, "the root element is a key"),
    ("xml", {"type": "object", "properties": {"full name": {"type": "string"}}}, "<a/>", None, "not a name of an element"),
    ("xml", EITHER, "<a>1</a>", True, "one of two roots"),
    ("xml", EITHER, "<b>x</b>", True, "one of two roots"),
    ("xml", EITHER, "<c>x</c>", False, "neither of two roots"),
    ("json", {"type": "object", "properties": {}, "additionalProperties": False}, '{"a": 1}', False, "no key is allowed"),
    ("json", {"type": "object", "properties": {}, "additionalProperties": False}, "{}", True, "no key is allowed"),
    ("json", {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}, '{"a": "x"}', False, "other keys have integers"),
    ("json", {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}, '{"a": 1}', True, "other keys have integers"),
    ("xml", TEXT, "<d>x</d>", True, "the root element is the key"),
    ("xml", TEXT, "<doc><d>x</d></doc>", False, "the root element is a key too many"),
    ("xml", {"type": "object", "properties": {"person": PERSON}}, "<person><name>Ada</name><born>1815</born></person>", True, "two keys below the root"),
    ("toml", PERSON, 'name = "Ada"\nborn = 1815', True, "fits"),
    ("toml", PERSON, "born = 1_815\nname = 'Ada'", True, "+other quotes and digits in groups"),
    ("toml", PERSON, 'name = "Ada"\nborn = 1815\nborn = 1', False, "a key comes twice"),
    ("toml", PERSON, "name = Ada\nborn = 1815", False, "text without quotes"),
    ("toml", PERSON, 'name = "Ada"', False, "a key is missing"),
    ("toml", NUMBER, "n = nan", False, "not a number of JSON"),
]  # fmt: skip
# Patterns, and texts that are tried against each of them.
PATTERNS = [
    r"^\d{4}$", r"^\w+$", r"^[a-z]+$", r"\.txt$", r"^\s*$", r"^.+$", r"^[^,]+$", r"^\d{4}-\d{2}-\d{2}$",
    r"^[A-Z]{2}-\d{3}$", r"\bcat\b", r"^(a|b)+$", r"^[\w.+-]+@[\w-]+\.[a-z]{2,}$", r"^(?<y>\d{2})\k<y>$",
    r"^\/x\/$", r"^[\s\S]*$", r"^\u0041da$", r"^a{2,3}$", r"^\S+$", r"^\D+$", r"^(?!x).*$",
]  # fmt: skip
SUBJECTS = [
    "2024", "2024\n", "٢٠٢٤", "２０２４", "é", "abc", "abc\n", "a.txt", "a.txt\n", "", " ", "\u00a0", "\u2028",
    "a\nb", "a\rb", "2024-01-05", "AB-123", "AB-١٢٣", "a cat", "écat", "ab", "a@b.co", "a@b.co\n", "1212",
    "/x/", "Ada", "aa", "x1", "ﬁ", "ſ",
]  # fmt: skip
_MATCH = "const [p, t] = JSON.parse(require('fs').readFileSync(0)); console.log(JSON.stringify(p.map(a => t.map(b => new RegExp(a, 'u').test(b)))))"


def _row(format: str, schema: Any) -> dict[str, Any]:
    return {"schema_str": json.dumps(schema, ensure_ascii=False), "schema_type": format}


def _patterns() -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        ["node", "-e", _MATCH],
        input=json.dumps([PATTERNS, SUBJECTS]),
        capture_output=True,
        text=True,
        check=True,
    )
    for pattern, found in zip(PATTERNS, json.loads(done.stdout), strict=True):
        for subject, matches in zip(SUBJECTS, found, strict=True):
            schema = {"type": "string", "pattern": pattern}
            yield case(
                _row("json", schema),
                json.dumps(subject),
                float(matches),
                "what ECMA 262 matches",
                source="Node's RegExp",
            )


def _cases() -> Iterator[dict[str, Any]]:
    for format, schema, answer, fits, why in ANSWERS:
        clothes = {"clothes": True} if why.startswith("+") else {}
        right = None if fits is None else float(fits)
        yield case(_row(format, schema), answer, right, why.removeprefix("+"), **clothes)
    yield from list(_patterns())[::2]
    for answer in _json_texts():
        yield case(
            _row("json", PERSON),
            answer,
            1.0,
            "the same document",
            source="Python's json",
            clothes=True,
        )
    for answer in _csv_texts():
        yield case(
            _row("csv", RIVERS), answer, 1.0, "the same table", source="Python's csv", clothes=True
        )


def _csv_texts() -> Iterator[str]:
    """Tables in other spellings, as Python's own writer has them."""
    for columns in (["name", "length_km"], ["length_km", "name"]):
        for quoting in (csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC):
            for end in ("\n", "\r\n"):
                for length in (6650, 6650.5, 0, -1e-3):
                    text = io.StringIO()
                    table = csv.DictWriter(text, columns, quoting=quoting, lineterminator=end)
                    table.writeheader()
                    table.writerow({"name": 'the "Nile", long', "length_km": length})
                    yield text.getvalue()


def _json_texts() -> Iterator[str]:
    """One document as JSON in other spellings; Python's own reader says that it is the same."""
    for name, born in (("Ada", 1815), ("Zoë", 0), ('"q"', -5), ("a\tb", 10**18), ("", 7)):
        wanted = {"name": name, "born": born}
        for ascii_only in (True, False):
            for indent in (None, 0, 1, 2, 4):
                for sort in (True, False):
                    text = json.dumps(
                        wanted, ensure_ascii=ascii_only, indent=indent, sort_keys=sort
                    )
                    assert json.loads(text) == wanted
                    yield text


if __name__ == "__main__":
    write("structured_outputs", _cases())
