package io.gymmesh.client;

import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.Task;
import io.gymmesh.row.v1.Row;
import java.util.Map;

/** What came of a rollout: each one that was asked for has exactly one. */
public sealed interface Outcome {
  /** The task, with its own seed. */
  Task task();

  /** The rollout; of one that failed, as far as it came. */
  Rollout rollout();

  /**
   * Its row, which {@link Codec#write} turns into JSON.
   *
   * @throws IllegalArgumentException the agent's rollout cannot be written, such as one whose
   *     evidence is no JSON; {@link #unwritable} stands for it then
   */
  Row row();

  /**
   * A failure with the rollout's identity and no more: of the agent for a completed rollout, the
   * same as before for one that failed.
   */
  Failed unwritable(IllegalArgumentException why);

  /** A rollout with an outcome to learn from. */
  record Completed(Task task, Rollout rollout) implements Outcome {
    @Override
    public Row row() {
      return Rows.completed(task, rollout);
    }

    @Override
    public Failed unwritable(IllegalArgumentException why) {
      MeshException error =
          MeshException.of(
              ErrorReason.ERROR_REASON_CONTRACT_VIOLATED,
              "the agent's rollout cannot be written as a row: " + why.getMessage(),
              Map.of("rule", "row", "expected", "", "got", ""));
      Failure failure =
          Failure.newBuilder()
              .setBoundary(Boundary.BOUNDARY_AGENT)
              .setStatus(error.toStatus())
              .setComponent(task.getAgent())
              .build();
      return new Failed(task, bare(rollout), failure);
    }
  }

  /** A rollout without: there is no reward, and none may be inferred. */
  record Failed(Task task, Rollout rollout, Failure failure) implements Outcome {
    @Override
    public Row row() {
      return Rows.failed(task, failure, rollout);
    }

    @Override
    public Failed unwritable(IllegalArgumentException why) {
      return new Failed(task, bare(rollout), failure);
    }

    /** The failure's status as a typed error. */
    public MeshException error() {
      return MeshException.from(failure.getStatus());
    }
  }

  private static Rollout bare(Rollout rollout) {
    return Rollout.newBuilder()
        .setRunId(rollout.getRunId())
        .setTaskId(rollout.getTaskId())
        .setRepeatIndex(rollout.getRepeatIndex())
        .setRolloutId(rollout.getRolloutId())
        .setAttempt(rollout.getAttempt())
        .build();
  }
}
