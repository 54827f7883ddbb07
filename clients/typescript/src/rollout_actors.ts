/**
 * What a row holds of actors beside the root agent. Pure.
 *
 * A conversation of an actor has `items` from where it begins to speak, in the form of
 * `response.output`, and apart from them in `first_items` what it had read before.
 */
import { itemsToValues } from "./codec/index.js";
import { threadOf } from "./conversation.js";
import type { ModelCallCompleted, Rollout } from "./gen/gymmesh/rollout/v1/rollout_pb.js";
import { type JsonObject, jsonObject } from "./json.js";
import { putTokens, usageOf } from "./rollout_response.js";
import { type CallTokens, callTokens } from "./tokens.js";

/** Each actor in the order of their names; throws as `completedRow`. */
export function actorRows(rollout: Rollout): JsonObject[] {
  const calls = rollout.modelCalls.filter((call) => call.actor);
  if (!calls.length) return [];
  const tokens = callTokens(rollout.modelCalls);
  return inOrder(calls.map((call) => call.actor)).map((name) =>
    actorRow(
      rollout,
      name,
      calls.filter((call) => call.actor === name),
      tokens,
    ),
  );
}

/**
 * One actor; its reward is the component of the verdict that is called like it. Where a trainer
 * should learn from some of its calls, these alone have tokens.
 */
function actorRow(
  rollout: Rollout,
  name: string,
  calls: readonly ModelCallCompleted[],
  tokens: Map<string, CallTokens>,
): JsonObject {
  const components = rollout.verified?.verification?.components ?? [];
  const reward = components.findLast((part) => part.name === name)?.value;
  const own = new Map(calls.map((call) => [call.callId, call]));
  const wentOn = new Set(calls.filter((call) => !call.detached).map((call) => call.parentCallId));
  const last = calls.filter((call) => !wentOn.has(call.callId));
  const trainable = calls.some((call) => call.trainable);
  for (const call of calls) if (trainable && !call.trainable) tokens.delete(call.callId);
  const row = jsonObject([
    ["name", name],
    ["models", inOrder(calls.map((call) => call.model))],
    ["model_calls", BigInt(calls.length)],
    ["trainable", trainable],
  ]);
  if (reward !== undefined) row["reward"] = reward;
  row["usage"] = usageOf(calls);
  row["conversations"] = last.map((call) => conversationRow(rollout, own, call, tokens));
  return row;
}

/** The conversation of an actor that ends with a call. */
function conversationRow(
  rollout: Rollout,
  own: ReadonlyMap<string, ModelCallCompleted>,
  last: ModelCallCompleted,
  tokens: Map<string, CallTokens>,
): JsonObject {
  const { items, whole, lastOf } = threadOf(rollout, last.callId);
  let first = last;
  for (;;) {
    const before = first.detached ? undefined : own.get(first.parentCallId);
    if (!before) break;
    first = before;
  }
  const after = first.detached ? "" : first.parentCallId;
  const begins = after ? threadOf(rollout, after).items.length : 0;
  const read = [...(whole ? (rollout.started?.items ?? []) : []), ...items.slice(0, begins)];
  const spoken = itemsToValues(items.slice(begins));
  for (const [call, place] of lastOf) {
    if (place >= begins) putTokens(spoken[place - begins], tokens, call);
  }
  const row = jsonObject();
  if (after) row["after"] = after;
  if (read.length) row["first_items"] = itemsToValues(read);
  row["items"] = spoken;
  return row;
}

/** Each of some texts once, in the order of their code points, which UTF-16 has not. */
function inOrder(texts: readonly string[]): string[] {
  return [...new Set(texts)].sort((one, other) =>
    Buffer.compare(Buffer.from(one), Buffer.from(other)),
  );
}
