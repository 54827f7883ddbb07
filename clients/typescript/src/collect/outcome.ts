/** The one outcome of a rollout. */
import { create } from "@bufbuild/protobuf";
import { MeshError, toStatus } from "../errors.js";
import {
  Boundary,
  type Failure,
  FailureSchema,
  type Rollout,
  RolloutSchema,
  type Task,
} from "../gen/gymmesh/rollout/v1/rollout_pb.js";
import type { JsonObject } from "../json.js";
import { completedRow, type FailedAttempt, failureRow } from "../rows.js";
import type { AttemptOutcome } from "./attempt.js";

interface OfRollout {
  readonly task: Task;
  readonly repeatIndex: number;
  readonly attempt: number;
  /** The instance of the agent that ran it; empty where none began. */
  readonly agentInstanceId: string;
  /**
   * The JSON row that `gym-cli collect` writes for it. Throws where the agent sent what is no JSON,
   * such as evidence that is none; `unwritable` stands for it then.
   */
  row(): JsonObject;
  /**
   * A failure with the rollout's identity and no more: of the agent for a completed rollout, the
   * same as before for one that failed.
   */
  unwritable(error: unknown): Outcome;
}

/** The one outcome of a rollout. */
export type Outcome = OfRollout &
  (
    | { readonly kind: "completed"; readonly rollout: Rollout }
    | { readonly kind: "failed"; readonly failure: Failure; readonly partial: Rollout }
  );

/** What an outcome is of. */
export interface Asked {
  readonly task: Task;
  readonly repeatIndex: number;
  readonly attempt: number;
}

/** The outcome that an attempt makes. */
export function outcomeOf(asked: Asked, ended: AttemptOutcome): Outcome {
  const { task } = asked;
  const rollout = ended.kind === "completed" ? ended.rollout : ended.partial;
  const about = { ...asked, agentInstanceId: rollout.started?.agentInstanceId ?? "" };
  if (ended.kind === "completed") {
    const row = (): JsonObject => completedRow(task, rollout);
    const unwritable = (error: unknown): Outcome =>
      failedOutcome(about, { failure: notWritten(task.agent, error), partial: bare(rollout) });
    return { ...about, kind: "completed", rollout, row, unwritable };
  }
  return failedOutcome(about, ended);
}

function failedOutcome(
  about: Asked & { readonly agentInstanceId: string },
  { failure, partial }: FailedAttempt,
): Outcome {
  const row = (): JsonObject => failureRow(about.task, { failure, partial });
  const unwritable = (): Outcome => failedOutcome(about, { failure, partial: bare(partial) });
  return { ...about, kind: "failed", failure, partial, row, unwritable };
}

function notWritten(component: string, error: unknown): Failure {
  const why = error instanceof Error ? error.message : String(error);
  const sentence = `the agent's rollout cannot be written as a row: ${why}`;
  const metadata = { rule: "row", expected: "", got: "" };
  const status = toStatus(new MeshError("CONTRACT_VIOLATED", sentence, { metadata }));
  return create(FailureSchema, { boundary: Boundary.AGENT, status, component });
}

function bare({ runId, taskId, repeatIndex, rolloutId, attempt }: Rollout): Rollout {
  return create(RolloutSchema, { runId, taskId, repeatIndex, rolloutId, attempt });
}
