/** The tokens of a rollout's model calls, put together again from what the events carry. Pure. */
import { ForkReason } from "./gen/gymmesh/model/v1/tokens_pb.js";
import type { ModelCallCompleted } from "./gen/gymmesh/rollout/v1/rollout_pb.js";
import { type JsonObject, jsonObject } from "./json.js";

const WIDTH = 4; // bytes of a token id, and of a log probability

/** The tokens of one model call. */
export interface CallTokens {
  /** All ids that the model read, int32; undefined where they cannot be put together. */
  readonly prompt: Uint8Array | undefined;
  /** The ids that it sampled, int32. */
  readonly output: Uint8Array;
  /** The log probability of each, float32; empty when not captured. */
  readonly logprobs: Uint8Array;
}

/** The tokens of each model call that has some, by call id. */
export function callTokens(calls: readonly ModelCallCompleted[]): Map<string, CallTokens> {
  const found = new Map<string, CallTokens>();
  for (const { callId, parentCallId, detached, tokens } of calls) {
    if (!tokens || !(tokens.outputTokenIds.length || tokens.promptTokenIds.length)) continue;
    const parent = detached ? undefined : found.get(parentCallId);
    const prompt = promptOf(tokens.promptPrefixTokens * WIDTH, tokens.promptTokenIds, parent);
    found.set(callId, { prompt, output: tokens.outputTokenIds, logprobs: tokens.logprobs });
  }
  return found;
}

/** Token ids (little-endian int32) as numbers. */
export function tokenIds(bytes: Uint8Array): number[] {
  return unpacked(bytes, (view, at) => view.getInt32(at, true));
}

/** Log probabilities (little-endian float32) as numbers. */
export function logprobs(bytes: Uint8Array): number[] {
  return unpacked(bytes, (view, at) => view.getFloat32(at, true));
}

/** As a row holds them, with the last item that the call wrote. */
export function tokenFields(tokens: CallTokens): JsonObject {
  const fields = jsonObject();
  if (tokens.prompt) fields["prompt_token_ids"] = tokenIds(tokens.prompt).map(BigInt);
  fields["generation_token_ids"] = tokenIds(tokens.output).map(BigInt);
  // JSON has no infinity, which is the log probability of what could not be sampled.
  fields["generation_log_probs"] = logprobs(tokens.logprobs).map((one) =>
    Number.isFinite(one) ? one : null,
  );
  return fields;
}

/**
 * What a row's metadata says of the weights that wrote what is to be learned from, and of its forks;
 * only what is. Other models have versions of their own.
 */
export function tokenNotes(calls: readonly ModelCallCompleted[]): JsonObject {
  const notes = jsonObject();
  const versions = new Set(
    calls
      .filter((call) => call.trainable)
      .flatMap((call) => call.tokens?.weights ?? [])
      .map((w) => w.version),
  );
  if (versions.size) {
    notes["weights_versions"] = [...versions].sort((left, right) => (left < right ? -1 : 1));
  }
  const forks = calls.flatMap(({ callId, tokens }) =>
    tokens?.fork
      ? [
          jsonObject([
            ["call_id", callId],
            ["reason", ForkReason[tokens.fork.reason] ?? `${tokens.fork.reason}`],
            ["common_tokens", BigInt(tokens.fork.commonTokens)],
          ]),
        ]
      : [],
  );
  if (forks.length) notes["token_forks"] = forks;
  return notes;
}

function promptOf(
  prefix: number,
  own: Uint8Array,
  parent: CallTokens | undefined,
): Uint8Array | undefined {
  if (!prefix) return own;
  if (!parent?.prompt) return undefined;
  const before = Buffer.concat([parent.prompt, parent.output]);
  return prefix <= before.length ? Buffer.concat([before.subarray(0, prefix), own]) : undefined;
}

function unpacked(bytes: Uint8Array, read: (view: DataView, at: number) => number): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: Math.floor(bytes.length / WIDTH) }, (_, at) =>
    read(view, at * WIDTH),
  );
}
