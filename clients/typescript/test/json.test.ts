/** Lossless JSON and the codec's edges, beyond the shared vectors. */
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import {
  bytesToText,
  CodecError,
  newMessage,
  parseJson,
  readDocument,
  readTasks,
  type Task,
  textOf,
  textToBytes,
  writeDocument,
  writeJson,
} from "@gymmesh/client";
import {
  ItemSchema,
  ResponseParamsSchema,
} from "@gymmesh/client/gen/gymmesh/responses/v1/responses_pb";
import { jsonEqual } from "./json_equal.js";

describe("JSON", () => {
  const same = [
    "[9007199254740993,-9223372036854775809,18446744073709551616]",
    "[1,1.0,-0.0,0,0.1,1e+300,5e-324]",
    '{"1":[],"__proto__":{"a":1},"constructor":null,"":""}',
    String.raw`["\ud800","\udc00x","a\u0000b"]`,
    '["\u2028 \u{1f600} ü"]',
    '[true,false,null,"",{},[]]',
  ];
  for (const text of same)
    it(`keeps ${text}`, () => assert.equal(writeJson(parseJson(text)), text));

  const refused = [
    "",
    "nul",
    "[1,]",
    '{"a":1,}',
    "{a:1}",
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
    "Infinity",
    "1e999",
    '"\n"',
    '"\\x"',
    '"open',
    '"a\\',
    "[1] 2",
    "'a'",
    "[".repeat(241) + "]".repeat(241),
    "9".repeat(5000),
  ];
  for (const text of refused) {
    it(`refuses ${JSON.stringify(text.slice(0, 20))}`, () => {
      assert.throws(() => parseJson(text), CodecError);
    });
  }

  it("tells integers and reals apart, and not the order of keys", () => {
    assert.ok(jsonEqual(parseJson('{"a":1,"b":[2.0]}'), parseJson('{"b":[2.0],"a":1}')));
    assert.ok(!jsonEqual(parseJson("1"), parseJson("1.0")));
    assert.ok(!jsonEqual(parseJson("0.0"), parseJson("-0.0")));
    assert.ok(!jsonEqual(parseJson('{"a":1}'), parseJson('{"toString":1}')));
  });

  it("takes documents as deep as the limit, and strings of many MiB", () => {
    assert.ok(Array.isArray(parseJson("[".repeat(240) + "]".repeat(240))));
    const long = `"${"a\\n".repeat(3_000_000)}"`;
    assert.equal((parseJson(long) as string).length, 6_000_000);
  });

  it("refuses to write what is not JSON, and names the place", () => {
    assert.throws(() => writeJson({ a: [1n, Number.NaN] }), /^CodecError: a\[1\]: NaN/);
    assert.throws(() => writeJson(undefined as never), CodecError);
  });
});

describe("text", () => {
  it("keeps unpaired surrogates in their three-byte form", () => {
    for (const text of ["\ud800", "a\udfffb", "\udc00\ud800", "\u{1f600}", "ü", "\ufeff x", ""]) {
      assert.equal(bytesToText(textToBytes(text)), text);
    }
    assert.deepEqual([...textToBytes("\ud800")], [0xed, 0xa0, 0x80]);
  });

  it("refuses bytes that are no text", () => {
    for (const bytes of [[0xff], [0xc3], [0xed, 0xa0], [0x80]]) {
      assert.throws(() => bytesToText(Uint8Array.from(bytes)), CodecError);
    }
  });
});

describe("codec", () => {
  it("keeps text with an unpaired surrogate out of protobuf strings", () => {
    const message = newMessage("user", "\ud800");
    assert.ok(message.kind.case === "message" && message.kind.value.content.case === undefined);
    assert.equal(textOf(message), "\ud800");
    const text = writeDocument(ItemSchema, message);
    assert.equal(writeDocument(ItemSchema, readDocument(ItemSchema, text)), text);
  });

  it("names the place of what it refuses", () => {
    const bad = { input: [{ type: "message", score: Number.NaN }] };
    assert.throws(() => readDocument(ResponseParamsSchema, bad), /input\[0\]\.score: NaN/);
    assert.throws(() => readDocument(ResponseParamsSchema, "[]"), /must be an object/);
  });
});

describe("task files", () => {
  const folder = mkdtempSync(join(tmpdir(), "gymmesh-"));
  const read = async (name: string, text: string): Promise<Task[]> => {
    writeFileSync(join(folder, name), text);
    const tasks: Task[] = [];
    const defaults = { environment: "e", agent: "a" };
    for await (const task of readTasks(join(folder, name), defaults)) tasks.push(task);
    return tasks;
  };
  const row = (more: string): string => `{${more}"responses_create_params":{"input":"hi"}}`;

  it("are lines of JSON; a mark, blank lines and other line separators do not matter", async () => {
    const input = `\ufeff${row('"x":"\u2028",')}\r\n\n \n${row("")}\n${row("")}`;
    const tasks = await read("a.jsonl", input);
    assert.equal(tasks.length, 3);
    const [first, second, third] = tasks.map((task) => task.taskId);
    assert.match(first ?? "", /^t-[0-9a-f]{32}$/);
    assert.equal(third, `${second}-2`);
  });

  it("name the line and the key of what is wrong", async () => {
    const wrong: [string, RegExp][] = [
      [`${row("")}\n{"task_id":"x"}`, /a\.jsonl:2: responses_create_params/],
      [`${row('"task_id":"x",')}\n${row('"task_id":"x",')}`, /:2: 'x' is the id of line 1/],
      [row('"seed":1.0,'), /seed/],
      [row('"seed":9223372036854775808,'), /seed/],
      [row('"tags":{"a":1},'), /tags\.a/],
      ["[1]", /:1: holds an array/],
      ["{", /:1: not valid JSON/],
    ];
    for (const [text, message] of wrong) {
      await assert.rejects(read("a.jsonl", text), { name: "TaskError", message });
    }
  });
});
