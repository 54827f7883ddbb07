/** One attempt of a rollout: the call to an agent, folded; every failure typed. */
import { create } from "@bufbuild/protobuf";
import { MeshError, toStatus } from "../errors.js";
import { Fold, StreamViolation } from "../fold.js";
import { Code } from "../gen/google/rpc/code_pb.js";
import type { RunRolloutRequest } from "../gen/gymmesh/agent/v1/agent_pb.js";
import {
  Boundary,
  type Failure,
  FailureSchema,
  type Rollout,
  type RolloutEvent,
} from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import type { Runner } from "./pool.js";

/** How one attempt ended. */
export type AttemptOutcome =
  | { readonly kind: "completed"; readonly rollout: Rollout }
  | {
      readonly kind: "failed";
      readonly failure: Failure;
      /** What was known of the rollout before it failed. */
      readonly partial: Rollout;
      readonly error: MeshError | undefined;
    };

/** A server that sheds load says CANCELLED. */
const PASSING: ReadonlySet<Code> = new Set([
  Code.UNAVAILABLE,
  Code.RESOURCE_EXHAUSTED,
  Code.ABORTED,
  Code.CANCELLED,
  Code.UNKNOWN,
]);
/** The longest that a timer of Node waits. */
const LONGEST_MS = 2 ** 31 - 1;
/** How long past its deadline an agent is waited for before it is left. */
const SLACK_MS = 5_000;

/**
 * Runs one attempt to its end. A stream that breaks, or breaks the stream law, is not data: it is a
 * failure at the boundary AGENT, or DEADLINE when the time was over.
 */
export async function runAttempt(
  runner: Runner,
  request: RunRolloutRequest,
  options: {
    readonly repeatIndex: number;
    readonly timeoutMs: number;
    readonly signal: AbortSignal;
    readonly onEvent: ((event: RolloutEvent) => void) | undefined;
  },
): Promise<AttemptOutcome> {
  const { rolloutId, attempt, runId, task } = request;
  const { repeatIndex, timeoutMs, signal } = options;
  const fold = new Fold({ rolloutId, attempt, runId, taskId: task?.taskId ?? "", repeatIndex });
  const stop = new AbortController();
  const abort = (): void => stop.abort();
  let isLate = false;
  const expire = (): void => {
    isLate = true;
    abort();
  };
  const timer = setTimeout(expire, Math.min(timeoutMs + SLACK_MS, LONGEST_MS));
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  const onEvent = (event: RolloutEvent): void => {
    fold.add(event);
    options.onEvent?.(event);
  };
  const failed = (boundary: Boundary, error: MeshError, retrySafe: boolean): AttemptOutcome => {
    const component = task?.agent ?? "";
    const status = toStatus(error);
    const failure = create(FailureSchema, { boundary, status, retrySafe, component });
    return { kind: "failed", failure, partial: fold.partial, error };
  };
  try {
    await runner.run(request, { timeoutMs, onEvent, signal: stop.signal });
    if (!fold.ended) fold.finish(); // throws `truncated`
  } catch (error) {
    // Once the outcome has come, how the call closed after it does not matter.
    if (!fold.ended) {
      const cancelled = new MeshError("CALLER_CANCELLED", "the rollout was cancelled");
      if (signal.aborted) return failed(Boundary.CANCELLED, cancelled, true);
      const known = isLate ? overdue(timeoutMs) : meshErrorOf(error);
      if (known.code === Code.DEADLINE_EXCEEDED) return failed(Boundary.DEADLINE, known, false);
      return failed(Boundary.AGENT, known, isSafe(error, fold.begun));
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
  }
  const rollout = fold.finish();
  const { outcome } = rollout;
  if (outcome.case !== "failed") return { kind: "completed", rollout };
  const failure = outcome.value.failure ?? create(FailureSchema);
  return { kind: "failed", failure, partial: rollout, error: undefined };
}

/**
 * Whether another attempt makes sense: after a call that broke once events had come, or in a way
 * that passes; after a broken stream law only where the stream ended early.
 */
function isSafe(error: unknown, begun: boolean): boolean {
  if (error instanceof StreamViolation) return error.rule === "truncated";
  if (!(error instanceof MeshError)) return false;
  // An attempt that runs there already has another collector; the next one has its own number.
  if (begun || error.reason === "ROLLOUT_EXISTS") return true;
  return error.reason !== "MESSAGE_TOO_LARGE" && PASSING.has(error.code);
}

function overdue(timeoutMs: number): MeshError {
  const sentence = `the rollout did not end within ${timeoutMs / 1000} s`;
  const method = "gymmesh.agent.v1.AgentService/RunRollout";
  return new MeshError("DEADLINE_PASSED", sentence, { metadata: { method } });
}

function meshErrorOf(error: unknown): MeshError {
  if (error instanceof MeshError) return error;
  if (error instanceof StreamViolation) {
    const { rule, expected, got, message } = error;
    const sentence = `the agent's stream broke the stream law: ${message}`;
    const metadata = { rule, expected, got };
    return new MeshError("CONTRACT_VIOLATED", sentence, { metadata, cause: error });
  }
  return new MeshError("INTERNAL_FAULT", `the rollout's listener failed: ${String(error)}`, {
    cause: error,
  });
}
