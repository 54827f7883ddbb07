package io.gymmesh.client;

import io.gymmesh.client.Attempt.Key;

/** Runs attempts at agents. Everything happens on one thread, that of the run's loop. */
interface AttemptRunner {
  /** How many attempts should run side by side here. */
  long places();

  /** What to choose by: the share of the places that are taken. */
  double busyness();

  /** Runs an attempt; its {@code done} is called once. */
  void start(Attempt attempt);

  /** Nobody waits for an attempt any more. */
  void cancel(Key key);

  /** The outcome of an attempt, of this runner or another one, is stored. */
  void stored(Key key);

  /** Ends; attempts in flight are cancelled at the agent and forgotten here. */
  void close();
}
