package io.gymmesh.client;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.ProtocolMessageEnum;
import com.google.rpc.ErrorInfo;
import io.gymmesh.errors.v1.ModelUsage;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.Completed;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.FinalState;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.ModelCallUsage;
import io.gymmesh.rollout.v1.RewardComponent;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.Started;
import io.gymmesh.rollout.v1.StopReason;
import io.gymmesh.rollout.v1.Task;
import io.gymmesh.rollout.v1.ToolCallRecord;
import io.gymmesh.rollout.v1.ToolOutcome;
import io.gymmesh.rollout.v1.TurnCompleted;
import io.gymmesh.rollout.v1.Verification;
import io.gymmesh.rollout.v1.VerificationStatus;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Rollouts as rows of JSON lines, the same rows that gym-cli writes. Pure.
 *
 * <p>A row of a failed rollout has {@code failure} in place of {@code reward} and {@code
 * verification}: it has no reward, and none may be inferred.
 */
public final class Rows {
  private static final Set<String> OWN_KEYS =
      Set.of(
          "responses_create_params",
          "first_items",
          "response",
          "reward",
          "task_id",
          "rollout_id",
          "run_id",
          "repeat_index",
          "attempt",
          "environment",
          "agent",
          "seed",
          "tags",
          "verification",
          "final_state",
          "stop_reason",
          "stop_detail",
          "metadata",
          "model_usage",
          "actors",
          "failure",
          "task_extras");

  private Rows() {}

  /**
   * The row of a completed rollout.
   *
   * @throws IllegalArgumentException it is not completed, or its calls form no conversation
   */
  public static Map<String, Object> completed(Task task, Rollout rollout) {
    if (!rollout.hasCompleted()) {
      throw new IllegalArgumentException("only a completed rollout has such a row");
    }
    Completed completed = rollout.getCompleted();
    Map<String, Object> verification =
        rollout.hasVerified() ? verification(rollout.getVerified().getVerification()) : noVerdict();
    Object reward = verification.get("reward");
    Map<String, Object> row = opening(task, rollout);
    row.put("reward", reward);
    putIdentity(row, task, rollout);
    row.put("verification", verification);
    if (rollout.getVerified().hasFinalState()) {
      row.put("final_state", finalState(rollout.getVerified().getFinalState()));
    }
    row.put("stop_reason", stopReason(completed));
    if (!completed.getStopDetail().isEmpty()) {
      row.put("stop_detail", completed.getStopDetail());
    }
    row.put("metadata", metadata(rollout, completed.getDurationUs(), reward != null));
    putModelUsage(row, rollout, List.of());
    putActors(row, rollout);
    putExtras(row, task, verification.get("evidence"));
    return row;
  }

  /** The row of a failed rollout, with what was known of it before. */
  public static Map<String, Object> failed(Task task, Failure failure, Rollout partial) {
    Map<String, Object> row = opening(task, partial);
    putIdentity(row, task, partial);
    row.put("failure", failure(failure));
    long duration =
        partial.hasCompleted()
            ? partial.getCompleted().getDurationUs()
            : partial.getFailed().getDurationUs();
    row.put("metadata", metadata(partial, duration, false));
    putModelUsage(row, partial, usageOf(failure));
    putActors(row, partial);
    putExtras(row, task, Map.of());
    return row;
  }

  private static Map<String, Object> opening(Task task, Rollout rollout) {
    RowResponse response = new RowResponse(task, rollout);
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("responses_create_params", response.params());
    if (rollout.hasStarted() && !beginsWithInput(task, rollout.getStarted())) {
      row.put("first_items", Codec.writeItems(rollout.getStarted().getItemsList()));
    }
    row.put("response", response.document());
    return row;
  }

  private static boolean beginsWithInput(Task task, Started started) {
    if (task.getParams().hasInputText()) {
      return started.getItemsCount() == 1
          && started.getItems(0).getMessage().getRole().equals("user")
          && Items.textOf(started.getItems(0)).equals(task.getParams().getInputText());
    }
    return started.getItemsList().equals(task.getParams().getInputList());
  }

  private static void putIdentity(Map<String, Object> row, Task task, Rollout rollout) {
    Started started = rollout.getStarted();
    row.put("task_id", either(rollout.getTaskId(), task.getTaskId()));
    row.put("rollout_id", rollout.getRolloutId());
    row.put("run_id", rollout.getRunId());
    row.put("repeat_index", Integer.toUnsignedLong(rollout.getRepeatIndex()));
    row.put("attempt", Integer.toUnsignedLong(rollout.getAttempt()));
    row.put("environment", either(started.getEnvironment(), task.getEnvironment()));
    row.put("agent", either(started.getAgent(), task.getAgent()));
    if (task.hasSeed()) {
      row.put("seed", task.getSeed());
    }
    if (task.getTagsCount() > 0) {
      row.put("tags", new TreeMap<String, Object>(task.getTagsMap()));
    }
  }

  private static Map<String, Object> noVerdict() {
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("status", "SKIPPED");
    row.put("reward", null);
    row.put("reason", "the agent sent no verdict");
    row.put("evidence", new LinkedHashMap<>());
    return row;
  }

  private static Map<String, Object> finalState(FinalState kept) {
    Map<String, Object> state = new LinkedHashMap<>();
    if (kept.getStateJson().isEmpty()) {
      state.put("omitted", kept.getOmitted());
    } else {
      state.put("state", Fields.readField(kept.getStateJson(), "state_json"));
    }
    return state;
  }

  private static Map<String, Object> verification(Verification said) {
    List<Object> components = new ArrayList<>();
    for (RewardComponent part : said.getComponentsList()) {
      Map<String, Object> component = new LinkedHashMap<>();
      component.put("name", part.getName());
      component.put("value", part.getValue());
      if (part.hasWeight()) {
        component.put("weight", part.getWeight());
      }
      components.add(component);
    }
    List<Object> stages = new ArrayList<>();
    said.getStagesList()
        .forEach(
            stage -> {
              Map<String, Object> step = new LinkedHashMap<>();
              step.put("name", stage.getName());
              step.put("duration_us", unsigned(stage.getDurationUs()));
              step.put("note", stage.getNote());
              stages.add(step);
            });
    Map<String, Object> row = new LinkedHashMap<>();
    row.put(
        "status",
        said.getStatus() == VerificationStatus.UNRECOGNIZED
            ? String.valueOf(said.getStatusValue())
            : name(said.getStatus(), "VERIFICATION_STATUS_"));
    row.put("reward", said.hasReward() ? said.getReward() : null);
    row.put("reason", said.getReason());
    row.put("components", components);
    row.put("verifier", said.getVerifier());
    row.put("version", said.getVerifierVersion());
    row.put("stages", stages);
    ByteString evidence = said.getEvidenceJson();
    row.put(
        "evidence",
        evidence.isEmpty() ? new LinkedHashMap<>() : Fields.readField(evidence, "evidence_json"));
    if (!said.getExplanation().isEmpty()) {
      row.put("explanation", said.getExplanation());
    }
    if (!said.getCompat().isEmpty()) {
      row.put("compat", said.getCompat());
    }
    return row;
  }

  private static Map<String, Object> metadata(Rollout rollout, long durationUs, boolean judged) {
    Set<String> toolsUsed = new LinkedHashSet<>();
    long toolsUs = 0;
    for (ToolCallRecord record : rollout.getToolCallsList()) {
      toolsUsed.add(record.getCompleted().getName());
      toolsUs += record.getCompleted().getTimings().getTotalUs();
    }
    long steps = 0;
    long modelUs = 0;
    for (ModelCallCompleted call : rollout.getModelCallsList()) {
      steps += call.getActor().isEmpty() ? 1 : 0;
      modelUs += call.getTimings().getTotalUs();
    }
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("steps_taken", steps);
    row.put("tools_used", new ArrayList<Object>(toolsUsed));
    row.put("tool_outcomes", toolOutcomes(rollout));
    row.put("verified", judged);
    if (rollout.getStarted().hasSeed()) {
      row.put("seed", rollout.getStarted().getSeed());
    }
    row.putAll(Tokens.notes(rollout.getModelCallsList()));
    Map<String, Object> timings = new LinkedHashMap<>();
    timings.put("started_at", RowResponse.seconds(rollout.getStartedUnixNano()));
    timings.put("duration_us", unsigned(durationUs));
    timings.put("model_us", unsigned(modelUs));
    timings.put("tools_us", unsigned(toolsUs));
    timings.put("verify_us", unsigned(rollout.getVerified().getTimings().getTotalUs()));
    row.put("timings", timings);
    List<Object> timed = new ArrayList<>();
    for (ModelCallCompleted call : rollout.getModelCallsList()) {
      if (call.getTimings().getEndpointUs() != 0 || call.getRetriesCount() > 0) {
        timed.add(timedCall(call));
      }
    }
    if (!timed.isEmpty()) {
      row.put("model_calls", timed);
    }
    return row;
  }

  /**
   * Where a model call's time went, in microseconds, and how often it was sent again, by reason.
   */
  private static Map<String, Object> timedCall(ModelCallCompleted call) {
    Map<String, Object> retries = new LinkedHashMap<>();
    call.getRetriesList().forEach(one -> retries.put(one.getReason(), (long) one.getCount()));
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("call_id", call.getCallId());
    row.put("total_us", unsigned(call.getTimings().getTotalUs()));
    row.put("queue_us", unsigned(call.getTimings().getQueueUs()));
    row.put("endpoint_us", unsigned(call.getTimings().getEndpointUs()));
    row.put("retry_us", unsigned(call.getTimings().getRetryUs()));
    row.put("retries", retries);
    return row;
  }

  /**
   * How the tool calls of each name were answered, in the order of the first ones. An outcome of a
   * later contract counts as UNSPECIFIED, as the contract has it.
   */
  private static List<Object> toolOutcomes(Rollout rollout) {
    Map<List<String>, Long> counts = new LinkedHashMap<>();
    for (ToolCallRecord record : rollout.getToolCallsList()) {
      ToolOutcome said = record.getCompleted().getOutcome();
      ToolOutcome outcome =
          said == ToolOutcome.UNRECOGNIZED ? ToolOutcome.TOOL_OUTCOME_UNSPECIFIED : said;
      List<String> key = List.of(record.getCompleted().getName(), name(outcome, "TOOL_OUTCOME_"));
      counts.merge(key, 1L, Long::sum);
    }
    List<Object> outcomes = new ArrayList<>();
    counts.forEach(
        (key, calls) -> {
          Map<String, Object> entry = new LinkedHashMap<>();
          entry.put("name", key.get(0));
          entry.put("outcome", key.get(1));
          entry.put("calls", calls);
          outcomes.add(entry);
        });
    return outcomes;
  }

  /** What the environment's own model calls consumed, by model. */
  private static void putModelUsage(
      Map<String, Object> row, Rollout rollout, List<ModelCallUsage> others) {
    List<ModelCallUsage> all = new ArrayList<>();
    for (TurnCompleted turn : rollout.getTurnsList()) {
      all.addAll(turn.getModelUsageList());
    }
    all.addAll(rollout.getVerified().getVerification().getModelUsageList());
    all.addAll(others);
    Map<String, long[]> sums = new LinkedHashMap<>();
    for (ModelCallUsage entry : all) {
      long[] sum = sums.computeIfAbsent(entry.getModel(), model -> new long[3]);
      sum[0] += Integer.toUnsignedLong(entry.getCalls());
      sum[1] += entry.getInputTokens();
      sum[2] += entry.getOutputTokens();
    }
    if (sums.isEmpty()) {
      return;
    }
    List<Object> usage = new ArrayList<>();
    sums.forEach(
        (model, sum) -> {
          Map<String, Object> entry = new LinkedHashMap<>();
          entry.put("model", model);
          entry.put("calls", sum[0]);
          entry.put("input_tokens", sum[1]);
          entry.put("output_tokens", sum[2]);
          usage.add(entry);
        });
    row.put("model_usage", usage);
  }

  /** What actors beside the root agent said, where there are any. */
  private static void putActors(Map<String, Object> row, Rollout rollout) {
    List<Object> actors = new RowActors(rollout).list();
    if (!actors.isEmpty()) {
      row.put("actors", actors);
    }
  }

  /** What a failed turn or verdict had models consume: a further detail of its status. */
  private static List<ModelCallUsage> usageOf(Failure failure) {
    for (Any detail : failure.getStatus().getDetailsList()) {
      if (detail.is(ModelUsage.class)) {
        try {
          return detail.unpack(ModelUsage.class).getUsageList();
        } catch (InvalidProtocolBufferException e) {
          continue; // a detail that is none says nothing
        }
      }
    }
    return List.of();
  }

  private static Map<String, Object> failure(Failure failure) {
    com.google.rpc.Status said = failure.getStatus();
    ErrorInfo info = info(said);
    Map<String, Object> status = new LinkedHashMap<>();
    status.put("code", (long) said.getCode());
    status.put("message", said.getMessage());
    status.put("reason", info.getReason());
    status.put("metadata", new TreeMap<String, Object>(info.getMetadataMap()));
    Map<String, Object> row = new LinkedHashMap<>();
    row.put(
        "boundary",
        failure.getBoundary() == Boundary.UNRECOGNIZED
            ? String.valueOf(failure.getBoundaryValue())
            : name(failure.getBoundary(), "BOUNDARY_"));
    row.put("status", status);
    row.put("retry_safe", failure.getRetrySafe());
    row.put("component", failure.getComponent());
    row.put("call_id", failure.getCallId());
    return row;
  }

  private static ErrorInfo info(com.google.rpc.Status status) {
    for (Any detail : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        try {
          return detail.unpack(ErrorInfo.class);
        } catch (InvalidProtocolBufferException e) {
          continue; // a detail that is none says nothing
        }
      }
    }
    return ErrorInfo.getDefaultInstance();
  }

  @SuppressWarnings("unchecked")
  private static void putExtras(Map<String, Object> row, Task task, Object evidence) {
    ByteString payload = task.getPayloadJson();
    Map<String, Object> extras =
        payload.isEmpty() ? Map.of() : Fields.readObject(payload, "payload_json");
    Map<String, Object> kept = new LinkedHashMap<>();
    extras.forEach(
        (key, value) -> {
          if (!OWN_KEYS.contains(key)) {
            row.put(key, value);
          } else if (key.equals("metadata") && value instanceof Map) {
            mergeMetadata(row, (Map<String, Object>) value, kept);
          } else {
            kept.put(key, value);
          }
        });
    if (!kept.isEmpty()) {
      row.put("task_extras", kept);
    }
    if (evidence instanceof Map<?, ?> found) {
      found.forEach(
          (key, value) -> {
            if (!OWN_KEYS.contains(key) && !row.containsKey(key)) {
              row.put((String) key, value);
            }
          });
    }
  }

  /** Puts the task's own metadata beside the row's, which wins; what it replaces is kept. */
  @SuppressWarnings("unchecked")
  private static void mergeMetadata(
      Map<String, Object> row, Map<String, Object> theirs, Map<String, Object> kept) {
    Map<String, Object> own = (Map<String, Object>) row.get("metadata");
    Map<String, Object> replaced = new LinkedHashMap<>(theirs);
    replaced.keySet().retainAll(own.keySet());
    Map<String, Object> merged = new LinkedHashMap<>(theirs);
    merged.putAll(own);
    row.put("metadata", merged);
    if (!replaced.isEmpty()) {
      kept.put("metadata", replaced);
    }
  }

  private static String stopReason(Completed completed) {
    return completed.getStopReason() == StopReason.UNRECOGNIZED
        ? String.valueOf(completed.getStopReasonValue())
        : name(completed.getStopReason(), "STOP_REASON_");
  }

  static String name(ProtocolMessageEnum value, String prefix) {
    return value.getValueDescriptor().getName().substring(prefix.length());
  }

  private static String either(String first, String second) {
    return first.isEmpty() ? second : first;
  }

  /** A number of 64 bits without a sign. */
  static Object unsigned(long value) {
    if (value >= 0) {
      return value;
    }
    return new BigInteger(Long.toUnsignedString(value));
  }
}
