package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.gymmesh.agent.v1.AgentServiceGrpc;
import io.gymmesh.agent.v1.GetAgentRequest;
import io.gymmesh.agent.v1.GetAgentResponse;
import io.gymmesh.rollout.v1.Task;
import java.time.Duration;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Collects rollouts from the agents behind a channel, over {@code AgentService.Collect}.
 *
 * <p>Every rollout asked for has exactly one {@link Outcome}. A connection that breaks is made anew
 * and goes on after the last event that came; what an agent lost, or failed in a way that is safe
 * to retry, runs again as a new attempt. The channel stays the caller's.
 */
public final class Collector {
  private final ManagedChannel channel;
  private final CollectOptions options;
  private final StreamLimits limits;

  /** Collects over this channel. */
  public Collector(ManagedChannel channel, CollectOptions options) {
    this(channel, options, StreamLimits.DEFAULT);
  }

  Collector(ManagedChannel channel, CollectOptions options, StreamLimits limits) {
    this.channel = channel;
    this.options = options;
    this.limits = limits;
  }

  /**
   * Asks an agent what it is: its name, and the environment of tasks that name none.
   *
   * @throws MeshException the call failed
   */
  public GetAgentResponse agent(Duration timeout) {
    try {
      return AgentServiceGrpc.newBlockingStub(channel)
          .withDeadlineAfter(timeout.toMillis(), TimeUnit.MILLISECONDS)
          .getAgent(GetAgentRequest.getDefaultInstance());
    } catch (io.grpc.StatusRuntimeException error) {
      throw MeshException.from(error);
    }
  }

  /**
   * Runs the tasks' rollouts once there is a subscriber, of which there may be one. An outcome
   * counts as stored, and its agent forgets it, when {@code onNext} has returned; it may block. At
   * most twice as many rollouts as may be in flight are begun and not handed out.
   */
  public Flow.Publisher<Outcome> publish(Iterable<Task> tasks) {
    AtomicBoolean taken = new AtomicBoolean();
    return subscriber -> {
      if (!taken.compareAndSet(false, true)) {
        subscriber.onSubscribe(new NoSubscription());
        subscriber.onError(new IllegalStateException("there is a subscriber already"));
        return;
      }
      Run run = new Run(channel, options, limits, tasks.iterator(), subscriber);
      subscriber.onSubscribe(run);
      run.begin();
    };
  }

  /**
   * Runs the tasks' rollouts. An outcome counts as stored, and its agent forgets it, when the next
   * one is asked for.
   */
  public Results collect(Iterable<Task> tasks) {
    Results results = new Results();
    publish(tasks).subscribe(results.subscriber());
    return results;
  }

  private static final class NoSubscription implements Flow.Subscription {
    @Override
    public void request(long n) {}

    @Override
    public void cancel() {}
  }
}
