/** One attempt of a rollout: the call to an agent, folded; every failure typed. */
import { create } from "@bufbuild/protobuf";
import { MeshError, toStatus } from "../errors.js";
import { Fold, StreamViolation } from "../fold.js";
import { Code } from "../gen/google/rpc/code_pb.js";
import type { RunRolloutRequest } from "../gen/gymmesh/agent/v1/agent_pb.js";
import {
  Boundary,
  FailureSchema,
  type Rollout,
  type RolloutEvent,
} from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import type { FailedAttempt } from "../rows.js";

/** How one attempt ended. */
export type AttemptOutcome =
  | { readonly kind: "completed"; readonly rollout: Rollout }
  | ({ readonly kind: "failed"; readonly error: MeshError | undefined } & FailedAttempt);

/** Sends an attempt to an agent and hands its events over, until the terminal one. */
export type Runner = (
  request: RunRolloutRequest,
  onEvent: (event: RolloutEvent) => void,
  signal: AbortSignal,
) => Promise<void>;

/** A server that sheds load says CANCELLED. */
const PASSING: ReadonlySet<Code> = new Set([
  Code.UNAVAILABLE,
  Code.RESOURCE_EXHAUSTED,
  Code.ABORTED,
  Code.CANCELLED,
  Code.UNKNOWN,
]);
/** No timer of Node goes on for longer. */
const LONGEST_MS = 2 ** 31 - 1;
/** How long past its deadline an agent is waited for before it is left. */
const SLACK_MS = 5_000;

/**
 * Runs one attempt to its end. A stream that breaks, or breaks the stream law, is not data: it is a
 * failure at the boundary AGENT, or DEADLINE when the time was over.
 */
export async function runAttempt(
  run: Runner,
  request: RunRolloutRequest,
  options: {
    readonly repeatIndex: number;
    readonly timeoutMs: number;
    readonly signal?: AbortSignal | undefined;
    readonly onEvent?: ((event: RolloutEvent) => void) | undefined;
  },
): Promise<AttemptOutcome> {
  const { rolloutId, attempt, runId, task } = request;
  const { repeatIndex, timeoutMs, signal, onEvent } = options;
  const fold = new Fold({ rolloutId, attempt, runId, taskId: task?.taskId ?? "", repeatIndex });
  const stop = new AbortController();
  const abort = (): void => stop.abort();
  let isLate = false;
  const timer = setTimeout(
    () => {
      isLate = true;
      abort();
    },
    Math.min(timeoutMs + SLACK_MS, LONGEST_MS),
  );
  signal?.addEventListener("abort", abort, { once: true });
  if (signal?.aborted) abort();
  const take = (event: RolloutEvent): void => {
    fold.add(event);
    onEvent?.(event);
  };
  const agent = task?.agent ?? "";
  try {
    await run(request, take, stop.signal);
    if (!fold.ended) fold.finish(); // throws `truncated`
  } catch (error) {
    // Once the outcome has come, how the call closed after it is of no account.
    if (!fold.ended) {
      if (signal?.aborted) return cancelled(agent, fold.partial);
      if (isLate) return failed(agent, fold, overdue(timeoutMs), false);
      const known = meshErrorOf(error);
      return failed(agent, fold, known, isSafe(error, fold.begun));
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
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
  // An attempt that runs there already is done with; the next one has a number of its own.
  if (begun || error.reason === "ROLLOUT_EXISTS") return true;
  return error.reason !== "MESSAGE_TOO_LARGE" && PASSING.has(error.code);
}

function failed(agent: string, fold: Fold, error: MeshError, retrySafe: boolean): AttemptOutcome {
  const isOverdue = error.code === Code.DEADLINE_EXCEEDED;
  const failure = create(FailureSchema, {
    boundary: isOverdue ? Boundary.DEADLINE : Boundary.AGENT,
    status: toStatus(error),
    retrySafe: retrySafe && !isOverdue,
    component: agent,
  });
  return { kind: "failed", failure, partial: fold.partial, error };
}

function cancelled(agent: string, partial: Rollout): AttemptOutcome {
  const error = new MeshError("CALLER_CANCELLED", "the rollout was cancelled");
  const failure = create(FailureSchema, {
    boundary: Boundary.CANCELLED,
    status: toStatus(error),
    retrySafe: true,
    component: agent,
  });
  return { kind: "failed", failure, partial, error };
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
