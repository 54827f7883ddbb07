package io.gymmesh.client;

import io.gymmesh.agent.v1.AttemptRef;
import io.gymmesh.agent.v1.RunRolloutRequest;
import java.util.function.Consumer;

/** An attempt that was asked of an agent. */
final class Attempt {
  /** Names an attempt. */
  record Key(String rolloutId, int attempt) {
    AttemptRef ref() {
      return AttemptRef.newBuilder().setRolloutId(rolloutId).setAttempt(attempt).build();
    }
  }

  final Key key;
  final RunRolloutRequest request;
  final Fold fold;

  /** When it must have ended, by System.nanoTime(). */
  final long dueNanos;

  /** Called once: with null after the terminal event, else with what ended the attempt. */
  final Consumer<RuntimeException> done;

  /** Whether the agent may have heard of it. */
  boolean sent;

  /** The sequence of the last event that came. */
  long sequence;

  /** Events up to this sequence may come again, and are dropped. */
  long repeated;

  Attempt(RunRolloutRequest request, Fold fold, long dueNanos, Consumer<RuntimeException> done) {
    this.key = new Key(request.getRolloutId(), request.getAttempt());
    this.request = request;
    this.fold = fold;
    this.dueNanos = dueNanos;
    this.done = done;
  }
}
