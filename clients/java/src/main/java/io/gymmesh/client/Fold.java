package io.gymmesh.client;

import io.gymmesh.responses.v1.Item;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.Completed;
import io.gymmesh.rollout.v1.Failed;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.RewardComponent;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.RolloutEvent;
import io.gymmesh.rollout.v1.RolloutEvent.EventCase;
import io.gymmesh.rollout.v1.SandboxEnded;
import io.gymmesh.rollout.v1.SandboxOpened;
import io.gymmesh.rollout.v1.StopReason;
import io.gymmesh.rollout.v1.ToolCallCompleted;
import io.gymmesh.rollout.v1.ToolCallRecord;
import io.gymmesh.rollout.v1.ToolCallStarted;
import io.gymmesh.rollout.v1.Verification;
import io.gymmesh.rollout.v1.VerificationStatus;
import io.gymmesh.rollout.v1.Verified;
import io.gymmesh.sandbox.v1.SandboxRef;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Folds the events of one attempt into its rollout, by the stream law. Pure; not for several
 * threads at a time.
 */
public final class Fold {
  /** What a tool call is known by. */
  record ToolKey(String modelCallId, String callId) {
    static ToolKey of(ToolCallCompleted answer) {
      return new ToolKey(answer.getModelCallId(), answer.getCallId());
    }
  }

  /** A tool call: its answer, or what was asked as long as there is none. */
  private static final class Tool {
    final ToolKey key;
    final long startedUnixNano;
    ToolCallCompleted answer;

    Tool(ToolKey key, long startedUnixNano, ToolCallCompleted answer) {
      this.key = key;
      this.startedUnixNano = startedUnixNano;
      this.answer = answer;
    }
  }

  private record Place(int call, int item) {}

  private final Rollout.Builder rollout;
  private final List<Tool> tools = new ArrayList<>();
  private final Map<ToolKey, Deque<Tool>> open = new HashMap<>();
  private long sequence;
  private boolean ended;

  /** Folds the events of this attempt. */
  public Fold(String rolloutId, int attempt, String runId, String taskId, int repeatIndex) {
    rollout =
        Rollout.newBuilder()
            .setRolloutId(rolloutId)
            .setAttempt(attempt)
            .setRunId(runId)
            .setTaskId(taskId)
            .setRepeatIndex(repeatIndex);
  }

  /** Whether any event has come. */
  public boolean begun() {
    return sequence > 0;
  }

  /** Whether the terminal event has come. */
  public boolean ended() {
    return ended;
  }

  /**
   * Takes the next event.
   *
   * @throws StreamViolation the event breaks the law; nothing of it is taken
   */
  public void add(RolloutEvent event) {
    long due = sequence + 1;
    checkPlace(event, due);
    switch (event.getEventCase()) {
      case STARTED ->
          rollout.setStarted(event.getStarted()).setStartedUnixNano(event.getRecordTimeUnixNano());
      case OUTPUT_DELTA -> {}
      case MODEL_CALL_COMPLETED -> rollout.addModelCalls(event.getModelCallCompleted());
      case TOOL_CALL_STARTED -> takeToolStart(event);
      case TOOL_CALL_COMPLETED -> takeToolAnswer(event.getToolCallCompleted());
      case TURN_COMPLETED -> rollout.addTurns(event.getTurnCompleted());
      case VERIFIED -> takeVerdict(event.getVerified());
      case COMPLETED -> takeCompleted(event);
      case FAILED -> takeFailed(event);
      case ANNOTATION -> rollout.addAnnotations(event.getAnnotation());
      case MEDIA_ADDED -> rollout.addMedia(event.getMediaAdded().getMedia());
      case SANDBOX_OPENED -> rollout.addSandboxes(event.getSandboxOpened());
      case SANDBOX_ENDED -> takeSandboxEnd(event.getSandboxEnded());
      case PROGRAM_ENDED -> rollout.setProgram(event.getProgramEnded());
      case EVENT_NOT_SET -> {
        if (!event.getIgnorable()) {
          throw new StreamViolation("unknown_event", "event " + due + " is of an unknown kind");
        }
      }
    }
    sequence = due;
  }

  /**
   * The whole rollout, once the stream has ended.
   *
   * @throws StreamViolation there was no terminal event ({@code truncated})
   */
  public Rollout finish() {
    if (!ended) {
      throw new StreamViolation(
          "truncated",
          "the stream ended after " + sequence + " events with no terminal one",
          "completed or failed",
          "");
    }
    return partial();
  }

  /** The rollout as far as it has come, for reports on one that broke off. */
  public Rollout partial() {
    Map<ToolKey, Deque<Place>> places = new HashMap<>();
    List<ModelCallCompleted> calls = rollout.getModelCallsList();
    for (int call = 0; call < calls.size(); call++) {
      List<Item> items = calls.get(call).getResponse().getOutputList();
      for (int item = 0; item < items.size(); item++) {
        if (items.get(item).hasFunctionCall()) {
          String callId = items.get(item).getFunctionCall().getCallId();
          ToolKey key = new ToolKey(calls.get(call).getCallId(), callId);
          places.computeIfAbsent(key, k -> new ArrayDeque<>()).add(new Place(call, item));
        }
      }
    }
    // A call that no answer holds (a custom agent's own) comes after the others, as it came.
    Place last = new Place(calls.size(), 0);
    Map<Tool, Place> placed = new HashMap<>();
    for (Tool tool : tools) {
      Deque<Place> known = places.get(tool.key);
      placed.put(tool, known == null || known.isEmpty() ? last : known.remove());
    }
    List<Tool> ordered = new ArrayList<>(tools);
    ordered.sort(
        Comparator.comparing(
            placed::get, Comparator.comparingInt(Place::call).thenComparingInt(Place::item)));
    Rollout.Builder whole = rollout.clone();
    for (Tool tool : ordered) {
      whole.addToolCalls(
          ToolCallRecord.newBuilder()
              .setStartedUnixNano(tool.startedUnixNano)
              .setCompleted(tool.answer));
    }
    return whole.build();
  }

  private void checkPlace(RolloutEvent event, long due) {
    EventCase kind = event.getEventCase();
    if (ended) {
      throw new StreamViolation("after_terminal", kind + " arrived after the end");
    }
    if (event.getSequence() != due) {
      throw new StreamViolation(
          "sequence",
          "expected event " + due + ", got " + event.getSequence(),
          due,
          event.getSequence());
    }
    if (!event.getRolloutId().equals(rollout.getRolloutId())
        || event.getAttempt() != rollout.getAttempt()) {
      throw new StreamViolation(
          "identity",
          "got an event of a different rollout or attempt",
          rollout.getRolloutId() + "/" + rollout.getAttempt(),
          event.getRolloutId() + "/" + event.getAttempt());
    }
    if ((kind == EventCase.STARTED) != (due == 1)) {
      throw new StreamViolation("started", "the first event, and no other, is `started`", "", kind);
    }
  }

  private void takeToolStart(RolloutEvent event) {
    ToolCallStarted started = event.getToolCallStarted();
    ToolKey key = new ToolKey(started.getModelCallId(), started.getCallId());
    ToolCallCompleted asked =
        ToolCallCompleted.newBuilder()
            .setModelCallId(started.getModelCallId())
            .setCallId(started.getCallId())
            .setName(started.getName())
            .setActor(started.getActor())
            .build();
    Tool tool = new Tool(key, event.getRecordTimeUnixNano(), asked);
    tools.add(tool);
    open.computeIfAbsent(key, k -> new ArrayDeque<>()).add(tool);
  }

  private void takeToolAnswer(ToolCallCompleted answer) {
    ToolKey key = ToolKey.of(answer);
    Deque<Tool> waiting = open.get(key);
    if (waiting == null || waiting.isEmpty()) {
      tools.add(new Tool(key, 0, answer));
    } else {
      waiting.remove().answer = answer;
    }
  }

  private void takeSandboxEnd(SandboxEnded ended) {
    for (SandboxOpened.Builder opened : rollout.getSandboxesBuilderList()) {
      SandboxRef ref = opened.getSandbox();
      if (ref.getSandboxId().equals(ended.getSandboxId())
          && ref.getInstanceId().equals(ended.getInstanceId())) {
        opened.setEnd(ended.getEnd());
      }
    }
  }

  private void takeVerdict(Verified verified) {
    if (rollout.hasVerified()) {
      throw new StreamViolation("unverified", "got a second verdict");
    }
    checkVerdict(verified.getVerification());
    rollout.setVerified(verified);
  }

  private static void checkVerdict(Verification verdict) {
    VerificationStatus status = verdict.getStatus();
    if (status == VerificationStatus.UNRECOGNIZED
        || status == VerificationStatus.VERIFICATION_STATUS_UNSPECIFIED) {
      throw new StreamViolation(
          "unverified", "the verdict has no known status", "", verdict.getStatusValue());
    }
    boolean judged = status == VerificationStatus.VERIFICATION_STATUS_VERIFIED;
    if (judged != verdict.hasReward()) {
      throw new StreamViolation("unverified", "a reward is set exactly when VERIFIED");
    }
    if (!Double.isFinite(verdict.getReward())) {
      throw new StreamViolation("unverified", "the reward is not finite", "", verdict.getReward());
    }
    for (RewardComponent part : verdict.getComponentsList()) {
      if (!Double.isFinite(part.getValue()) || !Double.isFinite(part.getWeight())) {
        throw new StreamViolation("unverified", "component '" + part.getName() + "' is not finite");
      }
    }
  }

  private void takeCompleted(RolloutEvent event) {
    Completed completed = event.getCompleted();
    StopReason reason = completed.getStopReason();
    if (reason == StopReason.UNRECOGNIZED || reason == StopReason.STOP_REASON_UNSPECIFIED) {
      throw new StreamViolation(
          "terminal", "`completed` gives no known stop reason", "", completed.getStopReasonValue());
    }
    if (!rollout.hasVerified()) {
      throw new StreamViolation("unverified", "got `completed` without `verified`");
    }
    end(event, completed.getEvents());
    rollout.setCompleted(completed);
  }

  private void takeFailed(RolloutEvent event) {
    Failed failed = event.getFailed();
    Boundary boundary = failed.getFailure().getBoundary();
    if (boundary == Boundary.UNRECOGNIZED || boundary == Boundary.BOUNDARY_UNSPECIFIED) {
      throw new StreamViolation(
          "terminal",
          "`failed` names no known boundary",
          "",
          failed.getFailure().getBoundaryValue());
    }
    end(event, failed.getEvents());
    rollout.setFailed(failed);
  }

  private void end(RolloutEvent event, long events) {
    if (events != sequence + 1) {
      throw new StreamViolation(
          "terminal", "the terminal event counts another number of events", sequence + 1, events);
    }
    ended = true;
    rollout.setEndedUnixNano(event.getRecordTimeUnixNano());
  }
}
