package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.gymmesh.agent.v1.AgentServiceGrpc;
import io.gymmesh.agent.v1.RunRolloutRequest;
import io.gymmesh.agent.v1.RunRolloutResponse;
import io.gymmesh.client.Attempt.Key;
import io.gymmesh.errors.v1.ErrorReason;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Runs each attempt by a call of RunRollout, which gRPC balances by itself. */
final class AgentCalls implements AttemptRunner {
  private static final int PLACES = 1024;

  private final ManagedChannel channel;
  private final ScheduledExecutorService loop;
  private final Map<Key, Call> calls = new HashMap<>();

  AgentCalls(ManagedChannel channel, ScheduledExecutorService loop) {
    this.channel = channel;
    this.loop = loop;
  }

  @Override
  public long places() {
    return PLACES;
  }

  @Override
  public double busyness() {
    return (double) calls.size() / PLACES;
  }

  @Override
  public void start(Attempt attempt) {
    attempt.sent = true;
    Call call = new Call(attempt);
    calls.put(attempt.key, call);
    AgentServiceGrpc.newStub(channel)
        .withDeadlineAfter(attempt.dueNanos - System.nanoTime(), TimeUnit.NANOSECONDS)
        .runRollout(attempt.request, call);
  }

  @Override
  public void cancel(Key key) {
    Call call = calls.remove(key);
    if (call != null) {
      call.request.cancel("nobody waits for the rollout any more", null);
    }
  }

  @Override
  public void stored(Key key) {
    // An agent keeps nothing for a call.
  }

  @Override
  public void close() {
    calls.values().forEach(call -> call.request.cancel("the collector ended", null));
    calls.clear();
  }

  /** One call; hands what comes to the loop. */
  private final class Call
      implements ClientResponseObserver<RunRolloutRequest, RunRolloutResponse> {
    final Attempt attempt;
    ClientCallStreamObserver<RunRolloutRequest> request;

    Call(Attempt attempt) {
      this.attempt = attempt;
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<RunRolloutRequest> request) {
      this.request = request;
    }

    @Override
    public void onNext(RunRolloutResponse response) {
      later(() -> take(response));
    }

    @Override
    public void onError(Throwable thrown) {
      later(() -> end(MeshException.from(thrown)));
    }

    @Override
    public void onCompleted() {
      later(() -> end(truncated()));
    }

    private void later(Runnable work) {
      if (!loop.isShutdown()) {
        loop.execute(work);
      }
    }

    private void take(RunRolloutResponse response) {
      if (calls.get(attempt.key) != this) {
        return;
      }
      try {
        attempt.fold.add(response.getEvent());
      } catch (RuntimeException objection) {
        request.cancel("the events broke the stream law", null);
        end(objection);
        return;
      }
      if (attempt.fold.ended()) {
        end(null);
      }
    }

    private void end(RuntimeException error) {
      if (calls.remove(attempt.key, this)) {
        attempt.done.accept(error);
      }
    }

    private MeshException truncated() {
      String address = channel.authority();
      return MeshException.of(
          ErrorReason.ERROR_REASON_PEER_UNAVAILABLE,
          "the agent at " + address + " ended the call before the rollout had ended",
          Map.of("address", address));
    }
  }
}
