package io.gymmesh.client;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;

/**
 * Outcomes as they come, in any order. For one thread at a time; closing it cancels what is in
 * flight.
 */
public final class Results implements Iterator<Outcome>, AutoCloseable {
  private record Signal(Outcome outcome, Throwable error) {}

  private static final Signal END = new Signal(null, null);

  private final BlockingQueue<Signal> signals = new LinkedBlockingQueue<>();
  private final Semaphore handled = new Semaphore(0);
  private Flow.Subscription subscription;
  private Signal next;
  private boolean holding;

  Results() {}

  /**
   * Waits for the next outcome; the one before it then counts as stored.
   *
   * @throws RuntimeException the tasks could not be read on
   */
  @Override
  public boolean hasNext() {
    if (next == null) {
      if (holding) {
        holding = false;
        handled.release();
      }
      subscription.request(1);
      try {
        next = signals.take();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        close();
        throw new IllegalStateException("interrupted while waiting for an outcome", e);
      }
    }
    if (next.error() instanceof RuntimeException error) {
      throw error;
    }
    if (next.error() != null) {
      throw new IllegalStateException(next.error());
    }
    return next.outcome() != null;
  }

  @Override
  public Outcome next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Outcome outcome = next.outcome();
    next = null;
    holding = true;
    return outcome;
  }

  @Override
  public void close() {
    subscription.cancel();
    handled.release();
    if (next == null || next.outcome() != null) {
      next = END;
    }
  }

  Flow.Subscriber<Outcome> subscriber() {
    return new Flow.Subscriber<>() {
      @Override
      public void onSubscribe(Flow.Subscription given) {
        subscription = given;
      }

      @Override
      public void onNext(Outcome outcome) {
        signals.add(new Signal(outcome, null));
        // What returns here is stored.
        handled.acquireUninterruptibly();
      }

      @Override
      public void onError(Throwable error) {
        signals.add(new Signal(null, error));
      }

      @Override
      public void onComplete() {
        signals.add(END);
      }
    };
  }
}
