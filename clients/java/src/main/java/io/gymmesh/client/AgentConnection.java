package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.gymmesh.agent.v1.AgentServiceGrpc;
import io.gymmesh.agent.v1.AttemptRef;
import io.gymmesh.agent.v1.CollectAck;
import io.gymmesh.agent.v1.CollectCancels;
import io.gymmesh.agent.v1.CollectCredit;
import io.gymmesh.agent.v1.CollectHello;
import io.gymmesh.agent.v1.CollectRequest;
import io.gymmesh.agent.v1.CollectResponse;
import io.gymmesh.agent.v1.CollectStart;
import io.gymmesh.agent.v1.CollectStarts;
import io.gymmesh.client.Attempt.Key;
import io.gymmesh.errors.v1.ErrorReason;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * One connection of a stream: says what is to be said, and hands what comes to the stream.
 *
 * <p>Everything happens on the thread of {@code loop}. Nothing but the hello is said before the
 * agent has answered it.
 */
final class AgentConnection {
  /** What a connection tells its stream, on the loop's thread. */
  interface Listener {
    /** A message came. */
    void hear(AgentConnection from, CollectResponse response);

    /** The connection is over. */
    void lost(AgentConnection which, MeshException error);
  }

  private static final long LONGEST_DAYS = 7;
  private static final long CLOSE_SECONDS = 2;
  private static final int MAX_STARTS = 256;
  private static final int MAX_START_BYTES = 256 * 1024;

  private final ManagedChannel channel;
  private final ScheduledExecutorService loop;
  private final Listener listener;
  private final List<Attempt> unsaid = new ArrayList<>();
  private ClientCallStreamObserver<CollectRequest> requests;
  private boolean welcomed;
  private boolean over;

  AgentConnection(ManagedChannel channel, ScheduledExecutorService loop, Listener listener) {
    this.channel = channel;
    this.loop = loop;
    this.listener = listener;
  }

  /** Connects. */
  void open(CollectHello hello) {
    // Otherwise gRPC would refuse at once for as long as its own wait lasts.
    channel.resetConnectBackoff();
    AgentServiceGrpc.newStub(channel)
        .withDeadlineAfter(LONGEST_DAYS, TimeUnit.DAYS)
        .withMaxInboundMessageSize(Channels.MAX_MESSAGE_BYTES)
        .collect(new Responses());
    requests.onNext(CollectRequest.newBuilder().setHello(hello).build());
  }

  /** Whether the agent has answered. */
  boolean welcomed() {
    return welcomed;
  }

  /** The agent has answered. */
  void welcome() {
    welcomed = true;
  }

  /** Starts an attempt together with others of this moment. */
  void start(Attempt attempt) {
    attempt.sent = true;
    unsaid.add(attempt);
    if (unsaid.size() == 1) {
      loop.execute(this::sayStarts);
    }
  }

  /** Nobody waits for an attempt any more: one that was not said yet never is. */
  void forget(Attempt attempt) {
    unsaid.remove(attempt);
  }

  void cancel(Collection<Key> keys) {
    if (welcomed && !keys.isEmpty()) {
      List<AttemptRef> refs = keys.stream().map(Key::ref).toList();
      say(request -> request.setCancels(CollectCancels.newBuilder().addAllAttempts(refs)));
    }
  }

  void grant(long events) {
    say(request -> request.setCredit(CollectCredit.newBuilder().setEvents(events)));
  }

  void acknowledge(long cursor) {
    if (welcomed) {
      say(request -> request.setAck(CollectAck.newBuilder().setCursor(cursor)));
    }
  }

  /** All is said; the agent may end its side, and has a moment for it. */
  void finish() {
    requests.onCompleted();
    over = true;
    loop.schedule(
        () -> requests.cancel("the collector ended", null), CLOSE_SECONDS, TimeUnit.SECONDS);
  }

  /** Breaks off. */
  void end(String why) {
    over = true;
    requests.cancel(why, null);
  }

  /** The error that stands for a connection that is none any more. */
  MeshException unavailable(String what) {
    String address = channel.authority();
    return MeshException.of(
        ErrorReason.ERROR_REASON_PEER_UNAVAILABLE,
        "the agent at " + address + " " + what,
        Map.of("address", address));
  }

  private void sayStarts() {
    if (over) {
      return;
    }
    List<Attempt> attempts = List.copyOf(unsaid);
    unsaid.clear();
    CollectStarts.Builder starts = CollectStarts.newBuilder();
    int bytes = 0;
    for (Attempt attempt : attempts) {
      int size = attempt.request.getSerializedSize();
      if (starts.getStartsCount() == MAX_STARTS || bytes > 0 && bytes + size > MAX_START_BYTES) {
        say(request -> request.setStarts(starts));
        starts.clear();
        bytes = 0;
      }
      bytes += size;
      long left = TimeUnit.NANOSECONDS.toMillis(attempt.dueNanos - System.nanoTime());
      starts.addStarts(
          CollectStart.newBuilder().setRequest(attempt.request).setTimeoutMs(Math.max(1, left)));
    }
    if (starts.getStartsCount() > 0) {
      say(request -> request.setStarts(starts));
    }
  }

  private void say(Consumer<CollectRequest.Builder> fill) {
    if (!over) {
      CollectRequest.Builder request = CollectRequest.newBuilder();
      fill.accept(request);
      requests.onNext(request.build());
    }
  }

  private void ended(MeshException error) {
    over = true;
    listener.lost(this, error);
  }

  /** Hands what comes to the loop. */
  private final class Responses implements ClientResponseObserver<CollectRequest, CollectResponse> {
    @Override
    public void beforeStart(ClientCallStreamObserver<CollectRequest> made) {
      requests = made;
    }

    @Override
    public void onNext(CollectResponse response) {
      later(() -> listener.hear(AgentConnection.this, response));
    }

    @Override
    public void onError(Throwable thrown) {
      later(() -> ended(MeshException.from(thrown)));
    }

    @Override
    public void onCompleted() {
      later(() -> ended(unavailable("ended the stream")));
    }

    private void later(Runnable work) {
      if (!loop.isShutdown()) {
        loop.execute(work);
      }
    }
  }
}
