package io.gymmesh.client;

import io.gymmesh.client.Attempt.Key;
import io.gymmesh.client.Run.Signal;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * Outcomes as they come, in any order. For one thread at a time; closing it cancels what is in
 * flight.
 */
public final class Results implements Iterator<Outcome>, AutoCloseable {
  private static final Signal END = new Signal(null, null, null);

  private final Run run;
  private Signal next;
  private Key held;

  Results(Run run) {
    this.run = run;
  }

  /**
   * Waits for the next outcome; the one before it then counts as stored.
   *
   * @throws RuntimeException the tasks could not be read on
   */
  @Override
  public boolean hasNext() {
    if (next == null) {
      if (held != null) {
        run.stored(held);
        held = null;
      }
      try {
        next = run.signals.take();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        close();
        throw new IllegalStateException("interrupted while waiting for an outcome", e);
      }
      run.taken();
    }
    if (next.error() != null) {
      throw next.error();
    }
    return next.outcome() != null;
  }

  @Override
  public Outcome next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Outcome outcome = next.outcome();
    held = next.key();
    next = null;
    return outcome;
  }

  @Override
  public void close() {
    held = null; // whether it is stored is not known
    run.cancel();
    next = END;
  }
}
