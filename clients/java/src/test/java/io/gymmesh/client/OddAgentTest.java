package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.rpc.RetryInfo;
import io.grpc.protobuf.StatusProto;
import io.gymmesh.agent.v1.RunRolloutRequest;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.rollout.v1.Failed;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.RolloutEvent;
import io.gymmesh.rollout.v1.Task;
import io.gymmesh.row.v1.Row;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Agents that are replaced, and what no agent should send. */
@Timeout(180)
class OddAgentTest extends WithFakeAgent {
  private static Task task(int number) {
    return Task.newBuilder().setTaskId("t" + number).setEnvironment("shop").build();
  }

  private List<Outcome> collect(List<Task> tasks) {
    CollectOptions options = CollectOptions.defaults().withRunId("run-1");
    return all(new Collector(channel, options).collect(tasks));
  }

  @Test
  void anotherInstanceGetsNewAttempts() {
    agent.behaviour =
        (stream, request) -> {
          if (agent.instance.equals("fake-1")) {
            agent.instance = "fake-2";
            agent.forget = true; // nothing had come, so it takes the stream for a new one
            stream.cut();
          } else if (stream.connection != null) {
            FakeAgent.complete(stream, request);
          }
        };
    List<Outcome> outcomes = collect(IntStream.range(0, 4).mapToObj(i -> task(i)).toList());
    outcomes.forEach(outcome -> assertInstanceOf(Outcome.Completed.class, outcome));
    Set<String> names = new HashSet<>();
    for (RunRolloutRequest start : agent.starts) {
      assertTrue(names.add(start.getRolloutId() + "#" + start.getAttempt()), start.getRolloutId());
    }
    assertTrue(names.stream().anyMatch(name -> name.endsWith("#2")), names.toString());
  }

  @Test
  void whatAnAgentThatWentDownHadTakenGetsAnotherNumber() {
    MeshException down =
        MeshException.of(ErrorReason.ERROR_REASON_DRAINING, "going down", Map.of());
    agent.behaviour =
        (stream, request) -> {
          if (request.getAttempt() == 1) {
            stream.connection.onError(StatusProto.toStatusRuntimeException(down.toStatus()));
            stream.connection = null;
          } else {
            FakeAgent.complete(stream, request);
          }
        };
    Outcome outcome = collect(List.of(task(0))).get(0);
    assertInstanceOf(Outcome.Completed.class, outcome);
    assertEquals(2, outcome.rollout().getAttempt());
  }

  @Test
  void aTaskThatIsLargerThanAMessageFailsAlone() {
    ByteString large = ByteString.copyFrom(new byte[Channels.MAX_MESSAGE_BYTES]);
    Task tooLarge = task(1).toBuilder().setPayloadJson(large).build();
    for (Outcome outcome : collect(List.of(task(0), tooLarge, task(2)))) {
      if (outcome.task().getTaskId().equals("t1")) {
        MeshException error = assertInstanceOf(Outcome.Failed.class, outcome).error();
        assertEquals(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE, error.reason());
      } else {
        assertInstanceOf(Outcome.Completed.class, outcome);
      }
    }
    assertEquals(1, agent.hellos.size());
    assertEquals(2, agent.starts.size());
  }

  @Test
  void waitsThatAreNoneAreNotWaitedFor() {
    agent.behaviour =
        (stream, request) -> {
          if (request.getAttempt() == 1) {
            stream.send(FakeAgent.started(request), failedWithAWait(request, Long.MAX_VALUE));
          } else if (request.getAttempt() == 2) {
            stream.send(FakeAgent.started(request), failedWithAWait(request, -1));
          } else {
            FakeAgent.complete(stream, request);
          }
        };
    List<Outcome> outcomes = collect(List.of(task(0)));
    assertEquals(1, outcomes.size());
    assertInstanceOf(Outcome.Completed.class, outcomes.get(0));
  }

  private static RolloutEvent failedWithAWait(RunRolloutRequest request, long seconds) {
    RetryInfo wait =
        RetryInfo.newBuilder()
            .setRetryDelay(com.google.protobuf.Duration.newBuilder().setSeconds(seconds))
            .build();
    Failed failed = FakeAgent.failed(request, 2, true).getFailed();
    Failure.Builder failure = failed.getFailure().toBuilder();
    failure.getStatusBuilder().addDetails(Any.pack(wait));
    return FakeAgent.event(request, 2).setFailed(failed.toBuilder().setFailure(failure)).build();
  }

  @Test
  void whatCannotBeWrittenHasAFailure() {
    agent.behaviour =
        (stream, request) -> {
          RolloutEvent verified = FakeAgent.verified(request, 2, 1.0);
          RolloutEvent.Builder odd = verified.toBuilder();
          odd.getVerifiedBuilder()
              .getVerificationBuilder()
              .setEvidenceJson(ByteString.copyFromUtf8("NaN"));
          stream.send(FakeAgent.started(request), odd.build(), FakeAgent.completed(request, 3));
        };
    Outcome outcome = collect(List.of(task(0))).get(0);
    CodecException why = assertThrows(CodecException.class, outcome::row);
    Outcome.Failed failed = outcome.unwritable(why);
    Row row = failed.row();
    assertEquals(ErrorReason.ERROR_REASON_CONTRACT_VIOLATED, failed.error().reason());
    assertFalse(row.hasReward());
    assertEquals(row, failed.unwritable(why).row());
  }
}
