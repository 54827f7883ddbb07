package io.gymmesh.client;

import io.gymmesh.agent.v1.RolloutOptions;
import java.time.Duration;
import java.util.UUID;
import java.util.function.Consumer;

/**
 * How to collect.
 *
 * @param runId the run's id; rollouts are named after it
 * @param repeats rollouts per task
 * @param concurrency the most attempts in flight; fewer if the agents report a lower target
 * @param maxAttempts the most attempts of a rollout; a start that a full agent refused, or that
 *     never reached an agent, does not count
 * @param timeout how long one attempt may take
 * @param patience how long a rollout is retried that no agent accepts
 * @param streams how many streams to keep open; behind a load balancer each may reach a different
 *     instance
 * @param callPerRollout runs each attempt by a call of RunRollout instead of over streams, so that
 *     gRPC balances each rollout separately; it costs more
 * @param rollout options sent with each rollout
 */
public record CollectOptions(
    String runId,
    int repeats,
    int concurrency,
    int maxAttempts,
    Duration timeout,
    Duration patience,
    int streams,
    boolean callPerRollout,
    RolloutOptions rollout) {

  /** Checks the bounds. */
  public CollectOptions {
    if (repeats < 1 || concurrency < 1 || maxAttempts < 1 || streams < 1) {
      throw new IllegalArgumentException(
          "repeats, concurrency, maxAttempts and streams are at least 1");
    }
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout is more than nothing");
    }
  }

  /** A new run with the defaults. */
  public static CollectOptions defaults() {
    return new CollectOptions(
        "run-" + UUID.randomUUID(),
        1,
        64,
        3,
        Duration.ofSeconds(900),
        Duration.ofSeconds(60),
        1,
        false,
        RolloutOptions.getDefaultInstance());
  }

  /** These options with this run id. */
  public CollectOptions withRunId(String value) {
    return changed(draft -> draft.runId = value);
  }

  /** These options with this number of repeats. */
  public CollectOptions withRepeats(int value) {
    return changed(draft -> draft.repeats = value);
  }

  /** These options with this number of attempts in flight. */
  public CollectOptions withConcurrency(int value) {
    return changed(draft -> draft.concurrency = value);
  }

  /** These options with this limit of attempts. */
  public CollectOptions withMaxAttempts(int value) {
    return changed(draft -> draft.maxAttempts = value);
  }

  /** These options with this time for an attempt. */
  public CollectOptions withTimeout(Duration value) {
    return changed(draft -> draft.timeout = value);
  }

  /** These options with this patience. */
  public CollectOptions withPatience(Duration value) {
    return changed(draft -> draft.patience = value);
  }

  /** These options with this number of streams. */
  public CollectOptions withStreams(int value) {
    return changed(draft -> draft.streams = value);
  }

  /** These options with, or without, a call for each attempt. */
  public CollectOptions withCallPerRollout(boolean value) {
    return changed(draft -> draft.callPerRollout = value);
  }

  /** These options with these options for each rollout. */
  public CollectOptions withRollout(RolloutOptions value) {
    return changed(draft -> draft.rollout = value);
  }

  private CollectOptions changed(Consumer<Draft> change) {
    Draft draft = new Draft();
    draft.runId = runId;
    draft.repeats = repeats;
    draft.concurrency = concurrency;
    draft.maxAttempts = maxAttempts;
    draft.timeout = timeout;
    draft.patience = patience;
    draft.streams = streams;
    draft.callPerRollout = callPerRollout;
    draft.rollout = rollout;
    change.accept(draft);
    return draft.made();
  }

  /** A builder of changed options. */
  private static final class Draft {
    String runId;
    int repeats;
    int concurrency;
    int maxAttempts;
    Duration timeout;
    Duration patience;
    int streams;
    boolean callPerRollout;
    RolloutOptions rollout;

    CollectOptions made() {
      return new CollectOptions(
          runId,
          repeats,
          concurrency,
          maxAttempts,
          timeout,
          patience,
          streams,
          callPerRollout,
          rollout);
    }
  }
}
