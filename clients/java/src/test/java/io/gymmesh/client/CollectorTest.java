package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.gymmesh.agent.v1.RunRolloutRequest;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.responses.v1.ResponseParams;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.Task;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Collecting from an agent on a real port, whatever that does. */
@Timeout(180)
class CollectorTest extends WithFakeAgent {
  @AfterEach
  void creditWasKept() {
    assertFalse(agent.overdrawn, "no more events were sent than there was credit for");
  }

  private static List<Task> tasks(int count) {
    List<Task> tasks = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      tasks.add(
          Task.newBuilder()
              .setTaskId("t" + i)
              .setEnvironment("shop")
              .setAgent("fake")
              .setSeed(i)
              .setParams(ResponseParams.newBuilder().setInputText("hi"))
              .build());
    }
    return tasks;
  }

  private static CollectOptions options() {
    return CollectOptions.defaults().withRunId("run-1").withTimeout(Duration.ofSeconds(120));
  }

  private List<Outcome> collect(CollectOptions options, int tasks) {
    return collect(options, StreamLimits.DEFAULT, tasks);
  }

  private List<Outcome> collect(CollectOptions options, StreamLimits limits, int tasks) {
    return all(new Collector(channel, options, limits).collect(tasks(tasks)));
  }

  @Test
  void everyRolloutHasOneOutcome() {
    List<Outcome> outcomes = collect(options().withRepeats(3).withConcurrency(16), 40);
    assertEquals(120, outcomes.size());
    Set<String> ids = new HashSet<>();
    for (Outcome outcome : outcomes) {
      assertInstanceOf(Outcome.Completed.class, outcome);
      ids.add(outcome.task().getTaskId() + "/" + outcome.rollout().getRepeatIndex());
      assertEquals(1.0, outcome.row().getReward());
    }
    assertEquals(120, ids.size());
    assertEquals(120, agent.starts.size());
    for (RunRolloutRequest start : agent.starts) {
      int repeat = Integer.parseInt(start.getRolloutId().split("/")[2]);
      long seed = Long.parseLong(start.getTask().getTaskId().substring(1));
      assertEquals(TaskReader.repeatSeed(seed, repeat), start.getTask().getSeed());
    }
  }

  @Test
  void moreEventsThanCreditAreGranted() {
    StreamLimits small =
        new StreamLimits(
            8,
            Duration.ofSeconds(10),
            Duration.ofSeconds(45),
            Duration.ofSeconds(30),
            Duration.ofMillis(10));
    // One at a time has three events on its way, and eight are allowed.
    assertEquals(20, collect(options().withConcurrency(1), small, 20).size());
  }

  @Test
  void aStreamThatIsCutGoesOnAfterTheLastEvent() {
    agent.behaviour =
        (stream, request) -> {
          stream.send(FakeAgent.started(request));
          if (agent.starts.size() == 5) {
            stream.cut();
          }
          stream.send(FakeAgent.verified(request, 2, 0.5), FakeAgent.completed(request, 3));
        };
    List<Outcome> outcomes = collect(options().withConcurrency(4), 20);
    assertEquals(20, outcomes.size());
    for (Outcome outcome : outcomes) {
      assertInstanceOf(Outcome.Completed.class, outcome);
      assertEquals(1, outcome.rollout().getAttempt());
    }
    assertEquals(2, agent.hellos.size());
    assertEquals(agent.hellos.get(0).getStreamId(), agent.hellos.get(1).getStreamId());
    assertTrue(agent.hellos.get(1).getLastCursor() > 0);
  }

  @Test
  void whatAnAgentLostRunsAgainAsANewAttempt() {
    agent.behaviour =
        (stream, request) -> {
          stream.send(FakeAgent.started(request));
          if (request.getAttempt() == 1) {
            if (agent.starts.size() == 4) {
              agent.forget = true;
              stream.cut();
            }
          } else {
            stream.send(FakeAgent.verified(request, 2, 1), FakeAgent.completed(request, 3));
          }
        };
    List<Outcome> outcomes = collect(options().withConcurrency(4), 4);
    assertEquals(4, outcomes.size());
    for (Outcome outcome : outcomes) {
      assertInstanceOf(Outcome.Completed.class, outcome);
      assertEquals(2, outcome.rollout().getAttempt());
    }
  }

  @Test
  void aConnectionOnWhichNothingComesIsMadeAnew() {
    agent.behaviour =
        (stream, request) -> {
          if (agent.hellos.size() > 1) {
            FakeAgent.complete(stream, request);
          } else {
            stream.started.clear(); // as if the start had been lost
          }
        };
    StreamLimits impatient =
        new StreamLimits(
            100,
            Duration.ofSeconds(10),
            Duration.ofMillis(300),
            Duration.ofSeconds(30),
            Duration.ofMillis(10));
    List<Outcome> outcomes = collect(options(), impatient, 1);
    assertInstanceOf(Outcome.Completed.class, outcomes.get(0));
    assertTrue(agent.hellos.size() > 1);
  }

  @Test
  void aFailureThatIsSafeToRetryRunsAgainUpToTheBound() {
    agent.behaviour =
        (stream, request) ->
            stream.send(FakeAgent.started(request), FakeAgent.failed(request, 2, true));
    List<Outcome> outcomes = collect(options().withMaxAttempts(3), 1);
    Outcome.Failed failed = assertInstanceOf(Outcome.Failed.class, outcomes.get(0));
    assertEquals(3, failed.rollout().getAttempt());
    assertEquals(3, agent.starts.size());
    assertFalse(failed.row().hasReward());
    assertEquals(ErrorReason.ERROR_REASON_WEIGHTS_STALE, failed.error().reason());
  }

  @Test
  void aFailureThatIsNotSafeToRetryIsTheOutcome() {
    agent.behaviour =
        (stream, request) ->
            stream.send(FakeAgent.started(request), FakeAgent.failed(request, 2, false));
    List<Outcome> outcomes = collect(options(), 1);
    assertInstanceOf(Outcome.Failed.class, outcomes.get(0));
    assertEquals(1, agent.starts.size());
  }

  @Test
  void whatIsRefusedForWantOfRoomDoesNotCount() {
    agent.behaviour =
        (stream, request) -> {
          if (agent.starts.size() == 1) {
            stream.refuse(request, ErrorReason.ERROR_REASON_QUEUE_FULL);
          } else {
            FakeAgent.complete(stream, request);
          }
        };
    List<Outcome> outcomes = collect(options().withMaxAttempts(1), 1);
    Outcome outcome = assertInstanceOf(Outcome.Completed.class, outcomes.get(0));
    assertEquals(1, outcome.rollout().getAttempt());
    assertEquals(2, agent.starts.size());
  }

  @Test
  void aRefusalThatIsNoMatterOfTimeIsTheOutcome() {
    agent.behaviour =
        (stream, request) ->
            stream.refuse(request, ErrorReason.ERROR_REASON_REQUIRED_FIELD_MISSING);
    Outcome.Failed failed = assertInstanceOf(Outcome.Failed.class, collect(options(), 1).get(0));
    assertEquals(Boundary.BOUNDARY_AGENT, failed.failure().getBoundary());
    assertEquals(1, agent.starts.size());
  }

  @Test
  void aStreamThatBreaksTheLawIsNoData() throws InterruptedException {
    agent.behaviour =
        (stream, request) -> {
          stream.send(FakeAgent.started(request));
          stream.send(FakeAgent.verified(request, 3, 1)); // two is missing
        };
    Outcome.Failed failed = assertInstanceOf(Outcome.Failed.class, collect(options(), 1).get(0));
    assertEquals(ErrorReason.ERROR_REASON_CONTRACT_VIOLATED, failed.error().reason());
    assertEquals("sequence", failed.error().metadata().get("rule"));
    assertFalse(failed.failure().getRetrySafe());
    await(() -> agent.cancels.size() == 1);
  }

  @Test
  void aRolloutThatCannotBeWrittenIsAFailureWithoutReward() {
    agent.behaviour =
        (stream, request) -> {
          ModelCallCompleted own =
              ModelCallCompleted.newBuilder().setCallId("c1").setParentCallId("c1").build();
          stream.send(
              FakeAgent.started(request),
              FakeAgent.event(request, 2).setModelCallCompleted(own).build(),
              FakeAgent.verified(request, 3, 1),
              FakeAgent.completed(request, 4));
        };
    Outcome.Completed circle =
        assertInstanceOf(Outcome.Completed.class, collect(options(), 1).get(0));
    IllegalArgumentException why = assertThrows(IllegalArgumentException.class, circle::row);
    Outcome.Failed failed = circle.unwritable(why);
    assertEquals("row", failed.error().metadata().get("rule"));
    assertFalse(failed.row().hasReward());
  }

  @Test
  void anotherMajorVersionIsRefused() {
    agent.contractVersion = "2.0";
    Outcome.Failed failed = assertInstanceOf(Outcome.Failed.class, collect(options(), 1).get(0));
    assertEquals(ErrorReason.ERROR_REASON_CONTRACT_MISMATCH, failed.error().reason());
  }

  @Test
  void anAgentThatIsNotThereIsAFailureAndNoReward() {
    agent.server.shutdownNow();
    StreamLimits impatient =
        new StreamLimits(
            100,
            Duration.ofSeconds(1),
            Duration.ofSeconds(45),
            Duration.ofMillis(50),
            Duration.ofMillis(10));
    List<Outcome> outcomes = collect(options().withPatience(Duration.ofMillis(1)), impatient, 2);
    assertEquals(2, outcomes.size());
    for (Outcome outcome : outcomes) {
      Outcome.Failed failed = assertInstanceOf(Outcome.Failed.class, outcome);
      assertEquals(Status.Code.UNAVAILABLE, failed.error().code());
      assertTrue(failed.failure().getRetrySafe());
    }
  }

  @Test
  void anOutcomeIsAcknowledgedOnceTheNextOneIsAskedFor() throws InterruptedException {
    try (Results results = new Collector(channel, options().withConcurrency(1)).collect(tasks(2))) {
      results.next();
      // It came in two batches: its start is stored, and its end is not.
      await(() -> agent.starts.size() == 2 && !agent.acks.isEmpty());
      synchronized (agent) {
        assertTrue(agent.acks.stream().allMatch(cursor -> cursor < 2), "" + agent.acks);
      }
      results.next();
      await(() -> agent.acks.contains(2L) || agent.acks.contains(3L));
    }
  }

  @Test
  void anAgentThatIsStartedAgainGetsNewAttempts() throws IOException, InterruptedException {
    agent.behaviour = (stream, request) -> stream.send(FakeAgent.started(request));
    try (Results results = new Collector(channel, options()).collect(tasks(3))) {
      await(() -> agent.starts.size() == 3);
      int port = agent.server.getPort();
      agent.close();
      agent.server.awaitTermination();
      agent = new FakeAgent(port);
      for (int i = 0; i < 3; i++) {
        Outcome outcome = assertInstanceOf(Outcome.Completed.class, results.next());
        assertEquals(2, outcome.rollout().getAttempt());
      }
      assertFalse(results.hasNext());
    }
  }

  @Test
  void anAttemptThatDoesNotEndInTimeIsADeadlineAndIsCancelled() throws InterruptedException {
    agent.behaviour = (stream, request) -> stream.send(FakeAgent.started(request));
    Outcome.Failed failed =
        assertInstanceOf(
            Outcome.Failed.class, collect(options().withTimeout(Duration.ofMillis(50)), 1).get(0));
    assertEquals(Boundary.BOUNDARY_DEADLINE, failed.failure().getBoundary());
    assertEquals(ErrorReason.ERROR_REASON_DEADLINE_PASSED, failed.error().reason());
    await(() -> agent.cancels.size() == 1);
  }

  @Test
  void noMoreRolloutsAreBegunThanAreTaken() throws Exception {
    try (Results results =
        new Collector(channel, options().withConcurrency(2)).collect(tasks(10))) {
      for (int i = 0; i < 3; i++) {
        assertTrue(results.hasNext());
        results.next();
      }
      // Besides the three, what may be begun: twice what may be in flight.
      await(() -> agent.starts.size() == 3 + 4);
      int more = 0;
      while (results.hasNext()) {
        results.next();
        more++;
      }
      assertEquals(7, more);
    }
    assertEquals(10, agent.starts.size());
  }

  @Test
  void tasksThatCannotBeReadEndTheRunWithTheirError() {
    Iterable<Task> broken =
        () ->
            new Iterator<>() {
              @Override
              public boolean hasNext() {
                throw new TaskReader.TaskException("line 7");
              }

              @Override
              public Task next() {
                throw new AssertionError();
              }
            };
    try (Results results = new Collector(channel, options()).collect(broken)) {
      assertThrows(TaskReader.TaskException.class, results::hasNext);
    }
  }

  @Test
  void closingCancelsWhatIsInFlight() throws InterruptedException {
    agent.behaviour = (stream, request) -> stream.send(FakeAgent.started(request));
    Results results = new Collector(channel, options()).collect(tasks(3));
    await(() -> agent.starts.size() == 3);
    results.close();
    await(() -> agent.cancels.size() == 3);
    assertFalse(results.hasNext());
  }

  @Test
  void noTasksAreNoOutcomes() {
    assertEquals(List.of(), collect(options(), 0));
  }

  @Test
  void runsHaveNamesOfTheirOwn() {
    assertNotEquals(CollectOptions.defaults().runId(), CollectOptions.defaults().runId());
    assertEquals("fake", new Collector(channel, options()).agent(Duration.ofSeconds(60)).getName());
  }
}
