/** A row's sums and times. Pure. */
import { create } from "@bufbuild/protobuf";
import { type Rollout, ToolOutcome } from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import {
  type RowMetadata,
  RowMetadataSchema,
  type ToolOutcomeCount,
  ToolOutcomeCountSchema,
} from "../gen/gymmesh/row/v1/row_pb.js";
import { keysOf } from "../json/plan.js";
import { isObject, type JsonObject, type JsonValue, jsonObject, storeJson } from "../json/value.js";
import { sumUint64 } from "./sums.js";

/** A row's metadata, and those members of the task's own metadata that are columns there. */
export function metadataOf(
  rollout: Rollout,
  verified: boolean,
  ofTask: JsonValue | undefined,
): [RowMetadata, JsonObject] {
  const seed = rollout.started?.seed;
  const answered = rollout.toolCalls.map(({ completed }) => completed);
  const learned = rollout.modelCalls.filter((call) => call.trainable);
  const versions = learned.flatMap(({ tokens }) => (tokens?.weights ?? []).map((w) => w.version));
  const metadata = create(RowMetadataSchema, {
    stepsTaken: rollout.modelCalls.filter((call) => !call.actor).length,
    toolsUsed: [...new Set(answered.map((done) => done?.name ?? ""))],
    toolOutcomes: outcomesOf(rollout),
    verified,
    ...(seed !== undefined && { seed }),
    weightsVersions: [...new Set(versions)].sort((left, right) => (left < right ? -1 : 1)),
    timings: {
      startedAt: Number(rollout.startedUnixNano) / 1e9,
      durationUs: rollout.outcome.value?.durationUs ?? 0n,
      modelUs: sumUint64(rollout.modelCalls.map((call) => call.timings?.totalUs)),
      toolsUs: sumUint64(answered.map((done) => done?.timings?.totalUs)),
      verifyUs: rollout.verified?.timings?.totalUs ?? 0n,
    },
  });
  if (!isObject(ofTask)) return [metadata, jsonObject()];
  const own = keysOf(RowMetadataSchema);
  const rest = Object.entries(ofTask).filter(([key]) => !own.has(key));
  if (rest.length) metadata.overlayJson = storeJson(jsonObject(rest));
  return [metadata, jsonObject(Object.entries(ofTask).filter(([key]) => own.has(key)))];
}

/** An outcome of a later contract counts as UNSPECIFIED, as the contract has it. */
function outcomesOf(rollout: Rollout): ToolOutcomeCount[] {
  const counts = new Map<string, ToolOutcomeCount>();
  for (const { completed } of rollout.toolCalls) {
    const name = completed?.name ?? "";
    const given = completed?.outcome ?? ToolOutcome.UNSPECIFIED;
    const outcome = given in ToolOutcome ? given : ToolOutcome.UNSPECIFIED;
    const key = `${outcome} ${name}`;
    const count = counts.get(key) ?? create(ToolOutcomeCountSchema, { name, outcome });
    count.calls += 1;
    counts.set(key, count);
  }
  return [...counts.values()];
}
