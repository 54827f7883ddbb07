package io.gymmesh.client;

import io.gymmesh.errors.v1.ModelUsage;
import io.gymmesh.responses.v1.Usage;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.ModelCallUsage;
import io.gymmesh.rollout.v1.RewardComponent;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.ToolCallCompleted;
import io.gymmesh.rollout.v1.ToolCallRecord;
import io.gymmesh.rollout.v1.ToolOutcome;
import io.gymmesh.rollout.v1.Verification;
import io.gymmesh.row.v1.Actor;
import io.gymmesh.row.v1.RowMetadata;
import io.gymmesh.row.v1.RowTimings;
import io.gymmesh.row.v1.ToolOutcomeCount;
import io.gymmesh.row.v1.UsageSum;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.ToLongFunction;

/** What a row sums up of a rollout. Pure. */
final class RowSums {
  private static final BigInteger MOST = BigInteger.valueOf(Long.MAX_VALUE);
  private static final BigInteger LEAST = BigInteger.valueOf(Long.MIN_VALUE);
  private static final long MOST_UINT32 = (1L << 32) - 1;

  private record Answered(String name, ToolOutcome outcome) {}

  private RowSums() {}

  /** In seconds since 1970. */
  static double startedAt(Rollout rollout) {
    return rollout.getStartedUnixNano() / 1e9;
  }

  static RowMetadata.Builder metadata(Rollout rollout, boolean verified) {
    RowMetadata.Builder row = RowMetadata.newBuilder().setVerified(verified);
    if (rollout.getStarted().hasSeed()) {
      row.setSeed(rollout.getStarted().getSeed());
    }
    long modelUs = 0;
    Set<Long> versions = new TreeSet<>(Long::compareUnsigned);
    for (ModelCallCompleted call : rollout.getModelCallsList()) {
      modelUs = addUnsigned(modelUs, call.getTimings().getTotalUs());
      if (call.getTrainable()) {
        call.getTokens().getWeightsList().forEach(span -> versions.add(span.getVersion()));
      }
    }
    long toolsUs = 0;
    Set<String> tools = new LinkedHashSet<>();
    Map<Answered, Integer> outcomes = new LinkedHashMap<>();
    for (ToolCallRecord record : rollout.getToolCallsList()) {
      ToolCallCompleted answer = record.getCompleted();
      toolsUs = addUnsigned(toolsUs, answer.getTimings().getTotalUs());
      tools.add(answer.getName());
      ToolOutcome outcome =
          answer.getOutcome() == ToolOutcome.UNRECOGNIZED
              ? ToolOutcome.TOOL_OUTCOME_UNSPECIFIED
              : answer.getOutcome();
      outcomes.merge(new Answered(answer.getName(), outcome), 1, Integer::sum);
    }
    outcomes.forEach(
        (answered, calls) ->
            row.addToolOutcomes(
                ToolOutcomeCount.newBuilder()
                    .setName(answered.name())
                    .setOutcome(answered.outcome())
                    .setCalls(calls)));
    return row.setStepsTaken(callsOf(rollout, "").size())
        .addAllToolsUsed(tools)
        .addAllWeightsVersions(versions)
        .setTimings(
            RowTimings.newBuilder()
                .setStartedAt(startedAt(rollout))
                // One of the two is 0.
                .setDurationUs(
                    rollout.getCompleted().getDurationUs() + rollout.getFailed().getDurationUs())
                .setModelUs(modelUs)
                .setToolsUs(toolsUs)
                .setVerifyUs(rollout.getVerified().getTimings().getTotalUs()));
  }

  /** The calls of an actor; the root agent's name is empty. */
  static List<ModelCallCompleted> callsOf(Rollout rollout, String actor) {
    return rollout.getModelCallsList().stream()
        .filter(call -> call.getActor().equals(actor))
        .toList();
  }

  static UsageSum.Builder usage(List<ModelCallCompleted> calls) {
    List<Usage> used = calls.stream().map(call -> call.getResponse().getUsage()).toList();
    long read = sum(used, Usage::getInputTokens);
    long wrote = sum(used, Usage::getOutputTokens);
    return UsageSum.newBuilder()
        .setInputTokens(read)
        .setCachedTokens(sum(used, Usage::getCachedTokens))
        .setOutputTokens(wrote)
        .setReasoningTokens(sum(used, Usage::getReasoningTokens))
        .setTotalTokens(sum(List.of(read, wrote), Long::longValue));
  }

  /** The sum of a number of each, or the long nearest to it. */
  private static <T> long sum(List<T> all, ToLongFunction<T> number) {
    BigInteger total = BigInteger.ZERO;
    for (T one : all) {
      total = total.add(BigInteger.valueOf(number.applyAsLong(one)));
    }
    return total.min(MOST).max(LEAST).longValueExact();
  }

  /** The sum of two uint64, or the largest one, whose bits are those of -1. */
  private static long addUnsigned(long one, long other) {
    long sum = one + other;
    return Long.compareUnsigned(sum, one) < 0 ? -1 : sum;
  }

  /**
   * What the environment's own model calls consumed, by model: for turns, the verdict, and a turn
   * or verdict that failed, which is a further detail of its status.
   */
  static List<ModelCallUsage> usageByModel(Rollout rollout, com.google.rpc.Status failed) {
    List<ModelCallUsage> all = new ArrayList<>();
    rollout.getTurnsList().forEach(turn -> all.addAll(turn.getModelUsageList()));
    all.addAll(rollout.getVerified().getVerification().getModelUsageList());
    all.addAll(Rows.detail(failed, ModelUsage.getDefaultInstance()).getUsageList());
    Map<String, List<ModelCallUsage>> byModel = new LinkedHashMap<>();
    for (ModelCallUsage entry : all) {
      byModel.computeIfAbsent(entry.getModel(), model -> new ArrayList<>()).add(entry);
    }
    return byModel.entrySet().stream().map(one -> sum(one.getKey(), one.getValue())).toList();
  }

  private static ModelCallUsage sum(String model, List<ModelCallUsage> all) {
    long calls = sum(all, one -> Integer.toUnsignedLong(one.getCalls()));
    return ModelCallUsage.newBuilder()
        .setModel(model)
        .setCalls((int) Math.min(calls, MOST_UINT32))
        .setInputTokens(sum(all, ModelCallUsage::getInputTokens))
        .setOutputTokens(sum(all, ModelCallUsage::getOutputTokens))
        .build();
  }

  /**
   * Those beside the root agent that called models, in the order of their names. A failed rollout
   * has no verdict, and its actors no reward.
   */
  static List<Actor> actors(Rollout rollout, Verification verdict) {
    Set<String> names = new TreeSet<>(Json.BY_CODE_POINTS);
    rollout.getModelCallsList().forEach(call -> names.add(call.getActor()));
    names.remove("");
    List<Actor> actors = new ArrayList<>();
    for (String name : names) {
      List<ModelCallCompleted> calls = callsOf(rollout, name);
      Set<String> models = new TreeSet<>(Json.BY_CODE_POINTS);
      calls.forEach(call -> models.add(call.getModel()));
      Actor.Builder actor =
          Actor.newBuilder()
              .setName(name)
              .addAllModels(models)
              .setModelCalls(calls.size())
              .setTrainable(calls.stream().anyMatch(ModelCallCompleted::getTrainable))
              .setUsage(usage(calls));
      for (RewardComponent part : verdict.getComponentsList()) {
        if (part.getName().equals(name)) {
          actor.setReward(part.getValue());
        }
      }
      actors.add(actor.build());
    }
    return actors;
  }
}
