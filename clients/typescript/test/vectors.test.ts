/** The vectors that clients in every language are tested with; see tests/contract. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import {
  createRegistry,
  type DescMessage,
  equals,
  fromJson,
  type JsonValue as ProtoJson,
  toJson,
} from "@bufbuild/protobuf";
import type { JsonObject, JsonValue } from "@gymmesh/client";
import * as gymmesh from "@gymmesh/client";
import { Code } from "@gymmesh/client/gen/google/rpc/code_pb";
import { ErrorInfoSchema } from "@gymmesh/client/gen/google/rpc/error_details_pb";
import { ModelUsageSchema } from "@gymmesh/client/gen/gymmesh/errors/v1/errors_pb";
import { TokenCaptureSchema } from "@gymmesh/client/gen/gymmesh/model/v1/tokens_pb";
import * as responses from "@gymmesh/client/gen/gymmesh/responses/v1/responses_pb";
import {
  Boundary,
  type RolloutEvent,
  RolloutEventSchema,
  RolloutSchema,
  TaskSchema,
} from "@gymmesh/client/gen/gymmesh/rollout/v1/rollout_pb";
import {
  RowMetadataSchema,
  RowResponseSchema,
  RowSchema,
} from "@gymmesh/client/gen/gymmesh/row/v1/row_pb";
import { jsonEqual } from "./json_equal.js";

/** What details of a status there are in the vectors. */
const DETAILS = createRegistry(ModelUsageSchema, ErrorInfoSchema);
const CONTRACT = fileURLToPath(new URL("../../../../tests/contract/", import.meta.url));
const NOUNS: Readonly<Record<string, DescMessage>> = {
  response: responses.ResponseSchema,
  params: responses.ResponseParamsSchema,
  item: responses.ItemSchema,
  tool: responses.ToolSchema,
  usage: responses.UsageSchema,
};

function assertSameJson(got: JsonValue, expected: JsonValue): void {
  if (jsonEqual(got, expected)) return;
  assert.equal(spelled(got), spelled(expected));
  assert.fail("the documents differ");
}

/** A document in lines, its keys in order, for a difference that can be read. */
function spelled(value: JsonValue, indent = ""): string {
  if (typeof value !== "object" || value === null) return gymmesh.writeJson(value);
  const deeper = `${indent} `;
  const members = Array.isArray(value)
    ? value.map((one) => spelled(one, deeper))
    : Object.keys(value)
        .sort()
        .map((key) => `${JSON.stringify(key)}: ${spelled(value[key] ?? null, deeper)}`);
  return `[\n${members.map((one) => deeper + one).join("\n")}\n${indent}]`;
}

/** A message as a document, in which bytes that hold JSON are parsed: their keys have no order. */
function comparable(schema: DescMessage, message: never): JsonValue {
  return opened(gymmesh.parseJson(JSON.stringify(toJson(schema, message, { registry: DETAILS }))));
}

function opened(value: JsonValue, key = ""): JsonValue {
  if (Array.isArray(value)) return value.map((one) => opened(one));
  if (gymmesh.isObject(value)) {
    return gymmesh.jsonObject(
      Object.entries(value).map(([name, one]) => [name, opened(one, name)]),
    );
  }
  const isDocument = key === "json" || key.endsWith("Json");
  return isDocument && typeof value === "string"
    ? gymmesh.parseJson(Buffer.from(value, "base64"))
    : value;
}

function read(path: string): JsonValue {
  return gymmesh.parseJson(readFileSync(CONTRACT + path));
}

function objects(value: JsonValue | undefined): JsonObject[] {
  assert.ok(Array.isArray(value) && value.length > 0, "there are no vectors");
  return value as JsonObject[];
}

function proto(value: JsonValue | undefined): ProtoJson {
  return JSON.parse(gymmesh.writeJson(value ?? null)) as ProtoJson;
}

function text(value: JsonValue | undefined): string {
  assert.equal(typeof value, "string");
  return value as string;
}

describe("codec.json", () => {
  for (const one of objects(read("vectors/codec.json"))) {
    it(`${one["noun"]}: ${one["about"]}`, () => {
      const schema = NOUNS[text(one["noun"])] ?? assert.fail("a new noun");
      const reader = (json: string) => gymmesh.readDocument(schema, json) as never;
      const writer = (message: never) => gymmesh.writeDocument(schema, message);
      const given = text(one["json"]);
      const expected = fromJson(schema, proto(one["message"])) as never;
      assertSameJson(comparable(schema, reader(given)), comparable(schema, expected));
      assertSameJson(gymmesh.parseJson(writer(expected)), gymmesh.parseJson(given));
      assertSameJson(gymmesh.parseJson(writer(reader(given))), gymmesh.parseJson(given));
    });
  }
});

describe("errors.json", () => {
  const vectors = objects(read("vectors/errors.json"));
  for (const one of vectors) {
    it(text(one["reason"]), () => {
      const rule = gymmesh.REASONS.get(text(one["reason"]));
      assert.ok(rule);
      assert.equal(BigInt(rule.number), one["number"]);
      assert.equal(Code[rule.code], one["code"]);
      assert.equal(rule.retrySafe, one["retry_safe"]);
      assert.equal(Boundary[rule.boundary], one["boundary"]);
    });
  }
  it("has every reason", () => assert.equal(vectors.length, gymmesh.REASONS.size));
});

describe("tasks.json", () => {
  const vectors = read("vectors/tasks.json") as JsonObject;
  const defaults = { environment: "default_environment", agent: "default_agent" };
  for (const one of objects(vectors["rows"])) {
    it(text(one["about"]), () => {
      const task = gymmesh.taskFromRow(text(one["row"]), defaults);
      const expected = fromJson(TaskSchema, proto(one["task"]));
      assertSameJson(
        comparable(TaskSchema, task as never),
        comparable(TaskSchema, expected as never),
      );
    });
  }
  for (const one of objects(vectors["seeds"])) {
    it(`seed ${one["seed"]} of repeat ${one["repeat_index"]}`, () => {
      const sent = gymmesh.repeatSeed(BigInt(text(one["seed"])), Number(one["repeat_index"]));
      assert.equal(sent, BigInt(text(one["sent"])));
    });
  }
});

function foldOf(vector: JsonObject) {
  const events = (vector["events"] as JsonValue[]).map(
    (event): RolloutEvent =>
      fromJson(RolloutEventSchema, proto(event), { ignoreUnknownFields: true, registry: DETAILS }),
  );
  return gymmesh.fold(events, {
    rolloutId: text(vector["rollout_id"]),
    attempt: Number(vector["attempt"]),
    runId: text(vector["run_id"] ?? ""),
    taskId: text(vector["task_id"] ?? ""),
    repeatIndex: Number(vector["repeat_index"] ?? 0n),
  });
}

function documents(items: readonly gymmesh.Item[]): JsonValue[] {
  return items.map((item) => gymmesh.documentOf(responses.ItemSchema, item));
}

describe("fold_vectors", () => {
  const files = readdirSync(`${CONTRACT}fold_vectors`).filter((name) => name.endsWith(".json"));
  assert.ok(files.length > 0, "there are no fold vectors");
  for (const file of files) {
    it(file, () => {
      const vector = read(`fold_vectors/${file}`) as JsonObject;
      const { violates } = vector;
      if (violates !== undefined) {
        assert.throws(() => foldOf(vector), { name: "StreamViolation", rule: violates });
        return;
      }
      const rollout = foldOf(vector);
      const expected = fromJson(RolloutSchema, proto(vector["rollout"]), { registry: DETAILS });
      const how = { registry: DETAILS };
      assert.deepEqual(toJson(RolloutSchema, rollout, how), toJson(RolloutSchema, expected, how));
      assert.ok(equals(RolloutSchema, rollout, expected));
      for (const [call, items] of Object.entries(vector["conversations"] as JsonObject)) {
        assertSameJson(documents(gymmesh.conversation(rollout, call)), items);
      }
      assertSameJson(documents(gymmesh.transcript(rollout)), vector["transcript"] ?? null);
    });
  }
});

/** What an overlay holds was not read into a column; a null stands for one that is not set. */
function assertNoColumn({ fields }: DescMessage, overlay: Uint8Array | undefined): void {
  if (!overlay?.length) return;
  const columns = new Set(fields.map(({ name }) => name.replace(/_json$/, "")));
  for (const [key, value] of Object.entries(gymmesh.parseJson(overlay) as JsonObject)) {
    assert.ok(value === null || !columns.has(key), `${key} was not read`);
  }
}

describe("rows.json", () => {
  const vectors = read("vectors/rows.json") as JsonObject;
  const task = fromJson(TaskSchema, proto(vectors["task"]));
  for (const one of objects(vectors["rows"])) {
    it(text(one["fold_vector"]), () => {
      const rollout = foldOf(read(`fold_vectors/${text(one["fold_vector"])}.json`) as JsonObject);
      const line = gymmesh.writeRow(gymmesh.rowOf(task, rollout));
      assertSameJson(gymmesh.parseJson(line), one["row"] ?? null);
      const again = gymmesh.readDocument(RowSchema, line);
      assertNoColumn(RowSchema, again.overlayJson);
      assertNoColumn(RowResponseSchema, again.response?.overlayJson);
      assertNoColumn(RowMetadataSchema, again.metadata?.overlayJson);
      assertSameJson(gymmesh.parseJson(gymmesh.writeRow(again)), one["row"] ?? null);
    });
  }
  for (const one of objects(vectors["answers"])) {
    it(text(one["about"]), () => {
      const rollout = fromJson(RolloutSchema, proto(one["rollout"]));
      const line = gymmesh.parseJson(gymmesh.writeRow(gymmesh.rowOf(task, rollout))) as JsonObject;
      assertSameJson(line["response"] ?? null, one["response"] ?? null);
    });
  }
  for (const one of objects(vectors["sums"])) {
    it(`sums: ${one["about"]}`, () => {
      const rollout = fromJson(RolloutSchema, proto(one["rollout"]));
      const line = gymmesh.parseJson(gymmesh.writeRow(gymmesh.rowOf(task, rollout)));
      assertSameJson(line, one["row"] ?? null);
    });
  }
  for (const one of objects(vectors["logprobs"])) {
    it(`log probabilities: ${one["about"]}`, () => {
      const tokens = gymmesh.readDocument(TokenCaptureSchema, `{"logprobs":${one["json"]}}`);
      assert.equal(Buffer.from(tokens.logprobs).toString("base64"), one["bytes"] ?? "");
    });
  }
  for (const one of objects(vectors["tokens"])) {
    it(`tokens: ${one["about"]}`, () => {
      const rollout = fromJson(RolloutSchema, proto(one["rollout"]));
      const write = () => gymmesh.writeRow(gymmesh.rowOf(task, rollout));
      if (one["has_row"]) write();
      else assert.throws(write, gymmesh.CodecError);
    });
  }
});
