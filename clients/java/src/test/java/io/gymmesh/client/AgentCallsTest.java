package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.responses.v1.ResponseParams;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.Task;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Rollouts that are run by a call each. */
@Timeout(180)
class AgentCallsTest extends WithFakeAgent {
  private static CollectOptions options() {
    return CollectOptions.defaults().withCallPerRollout(true).withTimeout(Duration.ofSeconds(120));
  }

  private List<Outcome> collect(CollectOptions options, int count) {
    List<Task> tasks = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      tasks.add(
          Task.newBuilder()
              .setTaskId("t" + i)
              .setEnvironment("shop")
              .setParams(ResponseParams.newBuilder().setInputText("hi"))
              .build());
    }
    return all(new Collector(channel, options).collect(tasks));
  }

  @Test
  void everyRolloutIsACallAndHasOneOutcome() {
    List<Outcome> outcomes = collect(options().withRepeats(3).withConcurrency(16), 40);
    Set<String> ids = new HashSet<>();
    for (Outcome outcome : outcomes) {
      assertInstanceOf(Outcome.Completed.class, outcome);
      assertEquals(1.0, outcome.row().getReward());
      ids.add(outcome.rollout().getRolloutId());
    }
    assertEquals(120, outcomes.size());
    assertEquals(120, ids.size());
    assertEquals(120, agent.starts.size());
    assertEquals(List.of(), agent.hellos);
  }

  @Test
  void aCallThatBreaksIsRunAgain() {
    agent.behaviour =
        (call, request) -> {
          if (request.getAttempt() == 1) {
            call.send(FakeAgent.started(request));
            call.cut();
          } else {
            FakeAgent.complete(call, request);
          }
        };
    Outcome outcome = assertInstanceOf(Outcome.Completed.class, collect(options(), 1).get(0));
    assertEquals(2, outcome.rollout().getAttempt());
  }

  @Test
  void aCallThatEndsBeforeItsRolloutIsNoData() {
    agent.behaviour =
        (call, request) -> {
          call.send(FakeAgent.started(request));
          call.end();
        };
    Outcome.Failed failed =
        assertInstanceOf(Outcome.Failed.class, collect(options().withMaxAttempts(1), 1).get(0));
    assertEquals(ErrorReason.ERROR_REASON_PEER_UNAVAILABLE, failed.error().reason());
    assertTrue(failed.failure().getRetrySafe());
  }

  @Test
  void eventsThatBreakTheLawAreNoDataAndEndTheCall() throws InterruptedException {
    agent.behaviour =
        (call, request) -> {
          call.send(FakeAgent.started(request));
          call.send(FakeAgent.verified(request, 3, 1)); // two is missing
        };
    Outcome.Failed failed = assertInstanceOf(Outcome.Failed.class, collect(options(), 1).get(0));
    assertEquals(ErrorReason.ERROR_REASON_CONTRACT_VIOLATED, failed.error().reason());
    await(() -> agent.cancels.size() == 1);
  }

  @Test
  void aCallThatDoesNotEndInTimeIsADeadline() {
    agent.behaviour = (call, request) -> call.send(FakeAgent.started(request));
    Outcome.Failed failed =
        assertInstanceOf(
            Outcome.Failed.class, collect(options().withTimeout(Duration.ofSeconds(1)), 1).get(0));
    assertEquals(Boundary.BOUNDARY_DEADLINE, failed.failure().getBoundary());
  }

  @Test
  void closingCancelsWhatIsInFlight() throws InterruptedException {
    agent.behaviour = (call, request) -> call.send(FakeAgent.started(request));
    Task task = Task.newBuilder().setTaskId("t").setEnvironment("shop").build();
    Results results = new Collector(channel, options().withRepeats(3)).collect(List.of(task));
    await(() -> agent.starts.size() == 3);
    results.close();
    await(() -> agent.cancels.size() == 3);
  }
}
