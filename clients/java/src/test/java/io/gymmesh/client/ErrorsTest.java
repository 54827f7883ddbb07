package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.run.v1.ControlRunRequest;
import io.gymmesh.run.v1.ControlRunResponse;
import io.gymmesh.run.v1.ListRunsRequest;
import io.gymmesh.run.v1.ListRunsResponse;
import io.gymmesh.run.v1.Run;
import io.gymmesh.run.v1.RunServiceGrpc;
import io.gymmesh.run.v1.RunState;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Errors from the wire, and the service that steers runs. */
class ErrorsTest {
  @ParameterizedTest
  @CsvSource({
    "UNAVAILABLE,,PEER_UNAVAILABLE",
    "CANCELLED,,PEER_UNAVAILABLE",
    "DEADLINE_EXCEEDED,,DEADLINE_PASSED",
    "UNIMPLEMENTED,,NOT_OFFERED",
    "UNAUTHENTICATED,,CREDENTIAL_INVALID",
    "PERMISSION_DENIED,,NOT_PERMITTED",
    "INVALID_ARGUMENT,,FIELD_INVALID",
    "RESOURCE_EXHAUSTED,gRPC message exceeds maximum size 4194304: 5000000,MESSAGE_TOO_LARGE",
    "RESOURCE_EXHAUSTED,Received message larger than max (5 vs. 4),MESSAGE_TOO_LARGE",
    "RESOURCE_EXHAUSTED,Bandwidth exhausted,QUEUE_FULL",
    "INTERNAL,,INTERNAL_FAULT",
    "NOT_FOUND,,INTERNAL_FAULT",
  })
  void anErrorWithoutInfoIsReadByItsCode(Status.Code code, String message, String reason) {
    Status status = code.toStatus().withDescription(message);
    MeshException error = MeshException.from(status.asRuntimeException());
    assertEquals(reason, error.reasonName());
    assertEquals(code, error.code());
  }

  @ParameterizedTest
  @CsvSource({"UNAVAILABLE,true", "INTERNAL,true", "INVALID_ARGUMENT,false", "NOT_FOUND,false"})
  void anUnknownReasonGoesByItsCode(Status.Code code, boolean retrySafe) {
    MeshException error = MeshException.from(status(code, "gymmesh", "FROM_LATER"));
    assertEquals("FROM_LATER", error.reasonName());
    assertEquals(ErrorReason.ERROR_REASON_UNSPECIFIED, error.reason());
    assertEquals(retrySafe, error.retrySafe());
  }

  @Test
  void infoOfAnotherDomainSaysNothing() {
    MeshException error =
        MeshException.from(status(Status.Code.UNAVAILABLE, "example.org", "MODEL_TIMEOUT"));
    assertEquals("PEER_UNAVAILABLE", error.reasonName());
  }

  @Test
  void anErrorSaysWhenToTryAgain() {
    RetryInfo retry =
        RetryInfo.newBuilder()
            .setRetryDelay(Duration.newBuilder().setSeconds(2).setNanos(500_000_000))
            .build();
    com.google.rpc.Status status =
        status(Status.Code.RESOURCE_EXHAUSTED, "gymmesh", "QUEUE_FULL").toBuilder()
            .addDetails(Any.pack(retry))
            .build();
    MeshException error = MeshException.from(StatusProto.toStatusRuntimeException(status));
    assertEquals(Optional.of(java.time.Duration.ofMillis(2500)), error.retryAfter());
    assertEquals(2, error.details().size());
    assertEquals(status, error.toStatus());
    assertTrue(error.retrySafe());
  }

  private static com.google.rpc.Status status(Status.Code code, String domain, String reason) {
    ErrorInfo info = ErrorInfo.newBuilder().setDomain(domain).setReason(reason).build();
    return com.google.rpc.Status.newBuilder()
        .setCode(code.value())
        .addDetails(Any.pack(info))
        .build();
  }

  @Test
  void runsAreListedAndSteeredWithTheToken() throws IOException {
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .intercept(new TokenCheck())
            .addService(new Runs())
            .build()
            .start();
    ManagedChannel channel = Channels.open("127.0.0.1:" + server.getPort());
    try {
      RunControl control = control(channel, "secret");
      assertEquals(3, control.list().size());
      assertEquals(RunState.RUN_STATE_PAUSED, control.pause("run-0").getState());
      MeshException missing = assertThrows(MeshException.class, () -> control.drain("run-9"));
      assertEquals(ErrorReason.ERROR_REASON_RUN_NOT_FOUND, missing.reason());
      assertFalse(missing.retrySafe());
      MeshException refused =
          assertThrows(MeshException.class, () -> control(channel, "wrong").list());
      assertEquals(ErrorReason.ERROR_REASON_CREDENTIAL_INVALID, refused.reason());
    } finally {
      Channels.close(channel);
      server.shutdownNow();
    }
  }

  private static RunControl control(ManagedChannel channel, String token) {
    return new RunControl(channel, token, java.time.Duration.ofSeconds(20));
  }

  private static final class TokenCheck implements ServerInterceptor {
    @Override
    public <A, B> ServerCall.Listener<A> interceptCall(
        ServerCall<A, B> call, Metadata headers, ServerCallHandler<A, B> next) {
      Metadata.Key<String> key = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
      if ("Bearer secret".equals(headers.get(key)) && Context.current().getDeadline() != null) {
        return Contexts.interceptCall(Context.current(), call, headers, next);
      }
      call.close(Status.UNAUTHENTICATED, new Metadata());
      return new ServerCall.Listener<>() {};
    }
  }

  private static final class Runs extends RunServiceGrpc.RunServiceImplBase {
    @Override
    public void listRuns(ListRunsRequest request, StreamObserver<ListRunsResponse> observer) {
      int page = request.getPageToken().isEmpty() ? 0 : Integer.parseInt(request.getPageToken());
      observer.onNext(
          ListRunsResponse.newBuilder()
              .addRuns(Run.newBuilder().setRunId("run-" + page))
              .setNextPageToken(page < 2 ? String.valueOf(page + 1) : "")
              .build());
      observer.onCompleted();
    }

    @Override
    public void controlRun(ControlRunRequest request, StreamObserver<ControlRunResponse> observer) {
      if (!request.getRunId().equals("run-0")) {
        MeshException missing =
            MeshException.of(
                ErrorReason.ERROR_REASON_RUN_NOT_FOUND,
                "no such run",
                Map.of("run_id", request.getRunId()));
        observer.onError(StatusProto.toStatusRuntimeException(missing.toStatus()));
        return;
      }
      Run.Builder run = Run.newBuilder().setRunId("run-0");
      run.setState(request.hasPause() ? RunState.RUN_STATE_PAUSED : RunState.RUN_STATE_RUNNING);
      observer.onNext(ControlRunResponse.newBuilder().setRun(run).build());
      observer.onCompleted();
    }
  }
}
