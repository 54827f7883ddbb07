package io.gymmesh.client;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import io.gymmesh.agent.v1.AgentServiceGrpc;
import io.gymmesh.agent.v1.AttemptRef;
import io.gymmesh.agent.v1.CollectEvents;
import io.gymmesh.agent.v1.CollectHello;
import io.gymmesh.agent.v1.CollectRequest;
import io.gymmesh.agent.v1.CollectResponse;
import io.gymmesh.agent.v1.CollectStart;
import io.gymmesh.agent.v1.CollectStartRefused;
import io.gymmesh.agent.v1.CollectWelcome;
import io.gymmesh.agent.v1.GetAgentRequest;
import io.gymmesh.agent.v1.GetAgentResponse;
import io.gymmesh.agent.v1.RunRolloutRequest;
import io.gymmesh.agent.v1.RunRolloutResponse;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.Completed;
import io.gymmesh.rollout.v1.Failed;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.RolloutEvent;
import io.gymmesh.rollout.v1.Started;
import io.gymmesh.rollout.v1.StopReason;
import io.gymmesh.rollout.v1.Verification;
import io.gymmesh.rollout.v1.VerificationStatus;
import io.gymmesh.rollout.v1.Verified;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** An agent on a real port that does what a test says with each start; it keeps Collect's rules. */
final class FakeAgent extends AgentServiceGrpc.AgentServiceImplBase implements AutoCloseable {
  /** What a test has it do with a start. */
  interface Behaviour {
    void start(Stream stream, RunRolloutRequest request);
  }

  /** A collector's stream, over any number of connections. */
  class Stream {
    final List<CollectEvents> batches = new ArrayList<>();
    final Set<String> started = new HashSet<>();
    StreamObserver<CollectResponse> connection;
    long credit;

    /** Sends events in one batch; while there is no connection they wait. */
    void send(List<RolloutEvent> events) {
      CollectEvents batch =
          CollectEvents.newBuilder().setCursor(batches.size() + 1).addAllEvents(events).build();
      batches.add(batch);
      credit -= events.size();
      if (credit < 0) {
        overdrawn = true;
      }
      if (connection != null) {
        connection.onNext(CollectResponse.newBuilder().setEvents(batch).build());
      }
    }

    void send(RolloutEvent... events) {
      send(List.of(events));
    }

    void refuse(RunRolloutRequest request, ErrorReason reason) {
      CollectStartRefused refusal =
          CollectStartRefused.newBuilder()
              .addAttempts(
                  AttemptRef.newBuilder()
                      .setRolloutId(request.getRolloutId())
                      .setAttempt(request.getAttempt()))
              .setStatus(MeshException.of(reason, "refused", Map.of()).toStatus())
              .build();
      started.remove(request.getRolloutId() + "#" + request.getAttempt());
      connection.onNext(CollectResponse.newBuilder().setStartRefused(refusal).build());
    }

    /** Ends what carries the events, without an error. */
    void end() {
      StreamObserver<CollectResponse> gone = connection;
      connection = null;
      gone.onCompleted();
    }

    /** Breaks the connection as a network does. */
    void cut() {
      StreamObserver<CollectResponse> gone = connection;
      connection = null;
      gone.onError(Status.UNAVAILABLE.withDescription("cut").asRuntimeException());
    }
  }

  /** A rollout that is run by a call of its own. */
  private final class Call extends Stream {
    private final StreamObserver<RunRolloutResponse> observer;

    Call(StreamObserver<RunRolloutResponse> observer) {
      this.observer = observer;
    }

    @Override
    void send(List<RolloutEvent> events) {
      for (RolloutEvent event : events) {
        observer.onNext(RunRolloutResponse.newBuilder().setEvent(event).build());
      }
      if (events.stream().anyMatch(event -> event.hasCompleted() || event.hasFailed())) {
        observer.onCompleted();
      }
    }

    @Override
    void end() {
      observer.onCompleted();
    }

    @Override
    void cut() {
      observer.onError(Status.UNAVAILABLE.withDescription("cut").asRuntimeException());
    }
  }

  private final Map<String, Stream> streams = new HashMap<>();
  final List<CollectHello> hellos = new ArrayList<>();
  final List<RunRolloutRequest> starts = new ArrayList<>();
  final List<AttemptRef> cancels = new ArrayList<>();
  final List<Long> acks = new ArrayList<>();
  final Server server;
  Behaviour behaviour = FakeAgent::complete;
  String contractVersion = "1.0";
  boolean overdrawn;

  /** Whether it forgets its streams when the next hello comes. */
  boolean forget;

  /** Which instance it says that it is. */
  String instance = "fake-1";

  FakeAgent() throws IOException {
    this(0);
  }

  FakeAgent(int port) throws IOException {
    server =
        Grpc.newServerBuilderForPort(port, InsecureServerCredentials.create())
            .addService(this)
            .build()
            .start();
  }

  String address() {
    return "127.0.0.1:" + server.getPort();
  }

  @Override
  public void close() {
    server.shutdownNow();
  }

  @Override
  public void getAgent(GetAgentRequest request, StreamObserver<GetAgentResponse> observer) {
    observer.onNext(
        GetAgentResponse.newBuilder()
            .setName("fake")
            .setCollect(true)
            .setDefaultEnvironment("shop")
            .build());
    observer.onCompleted();
  }

  @Override
  public StreamObserver<CollectRequest> collect(StreamObserver<CollectResponse> connection) {
    return new StreamObserver<>() {
      private Stream stream;

      @Override
      public void onNext(CollectRequest request) {
        synchronized (FakeAgent.this) {
          switch (request.getMessageCase()) {
            case HELLO -> stream = hello(request.getHello(), connection);
            case STARTS ->
                request.getStarts().getStartsList().forEach(start -> start(stream, start));
            case CANCELS -> cancels.addAll(request.getCancels().getAttemptsList());
            case CREDIT -> stream.credit += request.getCredit().getEvents();
            case ACK -> acks.add(request.getAck().getCursor());
            default -> throw new AssertionError(request);
          }
          FakeAgent.this.notifyAll();
        }
      }

      @Override
      public void onError(Throwable gone) {
        synchronized (FakeAgent.this) {
          if (stream != null && stream.connection == connection) {
            stream.connection = null;
          }
        }
      }

      @Override
      public void onCompleted() {
        connection.onCompleted();
      }
    };
  }

  @Override
  public void runRollout(RunRolloutRequest request, StreamObserver<RunRolloutResponse> observer) {
    ((ServerCallStreamObserver<RunRolloutResponse>) observer)
        .setOnCancelHandler(() -> cancelled(request));
    synchronized (this) {
      starts.add(request);
      behaviour.start(new Call(observer), request);
      notifyAll();
    }
  }

  private synchronized void cancelled(RunRolloutRequest request) {
    cancels.add(
        AttemptRef.newBuilder()
            .setRolloutId(request.getRolloutId())
            .setAttempt(request.getAttempt())
            .build());
    notifyAll();
  }

  private Stream hello(CollectHello hello, StreamObserver<CollectResponse> connection) {
    hellos.add(hello);
    if (forget) {
      streams.clear();
      forget = false;
    }
    boolean resumed = streams.containsKey(hello.getStreamId()) || hello.getLastCursor() == 0;
    Stream stream = streams.computeIfAbsent(hello.getStreamId(), id -> new Stream());
    stream.connection = connection;
    stream.credit = hello.getCredit();
    connection.onNext(
        CollectResponse.newBuilder()
            .setWelcome(
                CollectWelcome.newBuilder()
                    .setResumed(resumed)
                    .setCapacity(1000)
                    .setResumeWindowS(60)
                    .setInstanceId(instance)
                    .setContractVersion(contractVersion))
            .build());
    if (resumed) {
      for (CollectEvents batch : stream.batches) {
        if (batch.getCursor() > hello.getLastCursor()) {
          connection.onNext(CollectResponse.newBuilder().setEvents(batch).build());
        }
      }
    }
    return stream;
  }

  private void start(Stream stream, CollectStart start) {
    RunRolloutRequest request = start.getRequest();
    if (stream.started.add(request.getRolloutId() + "#" + request.getAttempt())) {
      starts.add(request);
      behaviour.start(stream, request);
    }
  }

  // -- events -------------------------------------------------------------------------------------

  static void complete(Stream stream, RunRolloutRequest request) {
    stream.send(started(request));
    stream.send(verified(request, 2, 1.0), completed(request, 3));
  }

  static RolloutEvent started(RunRolloutRequest request) {
    return event(request, 1)
        .setStarted(
            Started.newBuilder()
                .setEnvironment("shop")
                .setAgent("fake")
                .setAgentInstanceId("fake-1"))
        .build();
  }

  static RolloutEvent verified(RunRolloutRequest request, long sequence, double reward) {
    return event(request, sequence)
        .setVerified(
            Verified.newBuilder()
                .setVerification(
                    Verification.newBuilder()
                        .setStatus(VerificationStatus.VERIFICATION_STATUS_VERIFIED)
                        .setReward(reward)))
        .build();
  }

  static RolloutEvent completed(RunRolloutRequest request, long sequence) {
    return event(request, sequence)
        .setCompleted(
            Completed.newBuilder()
                .setStopReason(StopReason.STOP_REASON_MODEL_FINISHED)
                .setEvents(sequence))
        .build();
  }

  static RolloutEvent failed(RunRolloutRequest request, long sequence, boolean retrySafe) {
    ErrorInfo info = ErrorInfo.newBuilder().setDomain("gymmesh").setReason("WEIGHTS_STALE").build();
    return event(request, sequence)
        .setFailed(
            Failed.newBuilder()
                .setEvents(sequence)
                .setFailure(
                    Failure.newBuilder()
                        .setBoundary(Boundary.BOUNDARY_MODEL)
                        .setRetrySafe(retrySafe)
                        .setStatus(
                            com.google.rpc.Status.newBuilder()
                                .setCode(9)
                                .setMessage("stale")
                                .addDetails(Any.pack(info)))))
        .build();
  }

  static RolloutEvent.Builder event(RunRolloutRequest request, long sequence) {
    return RolloutEvent.newBuilder()
        .setRolloutId(request.getRolloutId())
        .setAttempt(request.getAttempt())
        .setSequence(sequence)
        .setRecordTimeUnixNano(1_700_000_000_000_000_000L + sequence);
  }
}
