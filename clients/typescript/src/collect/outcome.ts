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
import type { Row } from "../gen/gymmesh/row/v1/row_pb.js";
import { rowOf } from "../row/row.js";
import type { AttemptOutcome } from "./attempt.js";

/** What an outcome is of. */
interface Asked {
  readonly task: Task;
  readonly repeatIndex: number;
  readonly rolloutId: string;
  readonly attempt: number;
}

interface OfRollout extends Asked {
  /** The instance of the agent that ran it; empty where none began. */
  readonly agentInstanceId: string;
  /**
   * The row that `gym-cli collect` writes for it. It, or writing it, throws where the agent sent
   * invalid JSON; then `unwritable` returns the failure that replaces the outcome.
   */
  row(): Row;
  /**
   * A failure with the rollout's identity and nothing else: of the agent for a completed rollout,
   * the same as before for one that failed.
   */
  unwritable(error: unknown): Outcome;
}

/** The one outcome of a rollout. */
export type Outcome = OfRollout &
  (
    | { readonly kind: "completed"; readonly rollout: Rollout }
    | { readonly kind: "failed"; readonly failure: Failure; readonly partial: Rollout }
  );

/** The outcome that an attempt makes. */
export function outcomeOf(asked: Asked, ended: AttemptOutcome): Outcome {
  const { task } = asked;
  const rollout = ended.kind === "completed" ? ended.rollout : ended.partial;
  const about = { ...asked, agentInstanceId: rollout.started?.agentInstanceId ?? "" };
  const failed = (failure: Failure, partial: Rollout): Outcome => ({
    ...about,
    kind: "failed",
    failure,
    partial,
    row: () => rowOf(task, partial, failure),
    unwritable: () => failed(failure, bare(partial)),
  });
  if (ended.kind === "failed") return failed(ended.failure, rollout);
  return {
    ...about,
    kind: "completed",
    rollout,
    row: () => rowOf(task, rollout),
    unwritable: (error) => failed(notWritten(task.agent, error), bare(rollout)),
  };
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
