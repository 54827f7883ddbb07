package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.gymmesh.agent.v1.AgentServiceGrpc;
import io.gymmesh.agent.v1.GetAgentRequest;
import io.gymmesh.agent.v1.GetAgentResponse;
import io.gymmesh.rollout.v1.Task;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

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
   * Runs the tasks' rollouts. An outcome counts as stored, and its agent forgets it, when the next
   * one is asked for. At most twice as many rollouts as may be in flight are begun and not taken.
   */
  public Results collect(Iterable<Task> tasks) {
    Run run = new Run(channel, options, limits, tasks.iterator());
    run.begin();
    return new Results(run);
  }
}
