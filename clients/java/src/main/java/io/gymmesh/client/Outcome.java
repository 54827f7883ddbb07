package io.gymmesh.client;

import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.Task;
import java.util.Map;

/** What came of a rollout: each one that was asked for has exactly one. */
public sealed interface Outcome {
  /** The task, with its own seed. */
  Task task();

  /** The rollout; of one that failed, as far as it came. */
  Rollout rollout();

  /** The row that gym-cli writes for it. */
  Map<String, Object> row();

  /** A rollout with an outcome to learn from. */
  record Completed(Task task, Rollout rollout) implements Outcome {
    @Override
    public Map<String, Object> row() {
      return Rows.completed(task, rollout);
    }
  }

  /** A rollout without: there is no reward, and none may be inferred. */
  record Failed(Task task, Rollout rollout, Failure failure) implements Outcome {
    @Override
    public Map<String, Object> row() {
      return Rows.failed(task, failure, rollout);
    }

    /** The failure's status as a typed error. */
    public MeshException error() {
      return MeshException.from(failure.getStatus());
    }
  }
}
