/** Rows of rollouts that only a custom agent, or a failure, can bring about. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  bytesToText,
  type JsonObject,
  newMessage,
  parseJson,
  readDocument,
  rowOf,
  storeJson,
  writeRow,
} from "@gymmesh/client";
import { RolloutSchema, TaskSchema } from "@gymmesh/client/gen/gymmesh/rollout/v1/rollout_pb";
import { type Row, RowSchema } from "@gymmesh/client/gen/gymmesh/row/v1/row_pb";

type Init = MessageInitShape<typeof RolloutSchema>;

const task = create(TaskSchema, { taskId: "t" });
const completed = { outcome: { case: "completed", value: {} } } satisfies Init;
const failed = { outcome: { case: "failed", value: { failure: {} } } } satisfies Init;

function rowed(rollout: Init): Row {
  return rowOf(task, create(RolloutSchema, rollout));
}

function answered(callId: string, text: string, parentCallId = "") {
  return { callId, parentCallId, response: { output: [newMessage("assistant", text)] } };
}

describe("a row", () => {
  it("takes keys of the evidence only where it is an object", () => {
    const overlay = (evidence: string): string => {
      const evidenceJson = storeJson(parseJson(evidence));
      return bytesToText(
        rowed({ ...completed, verified: { verification: { evidenceJson } } }).overlayJson,
      );
    };
    assert.equal(overlay('{"answer":4}'), '{"answer":4}');
    for (const evidence of ["[1]", '"x"', "1", "null"]) assert.equal(overlay(evidence), "");
  });

  it("has one place for each of two calls of one id", () => {
    const modelCalls = [answered("a", "one"), answered("a", "two")];
    const { calls, response } = rowed({ ...completed, modelCalls });
    assert.deepEqual(
      calls.map(({ firstItem }) => firstItem),
      [undefined, 0],
    );
    assert.deepEqual(
      calls.map(({ items }) => items.length),
      [1, 0],
    );
    assert.equal(response?.output.length, 1);
  });

  it("keeps the calls of a rollout that failed where they are no conversation", () => {
    const modelCalls = [answered("a", "one"), answered("b", "two", "nobody")];
    assert.throws(() => rowed({ ...completed, modelCalls }), RangeError);
    const { calls, response } = rowed({ ...failed, modelCalls });
    assert.deepEqual(
      calls.map(({ items }) => items.length),
      [1, 1],
    );
    assert.equal(response?.output.length, 0);
  });

  it("writes incomplete_details as the answer has them", () => {
    const head = (details: string, status: string): void => {
      const overlayJson = storeJson(parseJson(`{"incomplete_details":${details}}`));
      const modelCalls = [{ callId: "a", response: { overlayJson } }];
      const line = parseJson(writeRow(rowed({ ...completed, modelCalls }))) as JsonObject;
      const response = line["response"] as JsonObject;
      assert.deepEqual(response["incomplete_details"], parseJson(details));
      assert.equal(response["status"], status);
    };
    for (const details of ["{}", '""', "[]", "0", "false", "null"]) head(details, "completed");
    for (const details of ['{"reason":"x"}', '"x"', "[1]", "1"]) head(details, "incomplete");
  });

  it("reads a log probability that is null as NaN", () => {
    const text = '{"calls":[{"call_id":"a","tokens":{"logprobs":[null,-1.0]}}]}';
    const logprobs = readDocument(RowSchema, text).calls[0]?.tokens?.logprobs ?? new Uint8Array();
    const view = new DataView(logprobs.buffer, logprobs.byteOffset);
    assert.deepEqual([view.getFloat32(0, true), view.getFloat32(4, true)], [Number.NaN, -1]);
  });
});
