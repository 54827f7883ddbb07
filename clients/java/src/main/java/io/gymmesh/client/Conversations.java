package io.gymmesh.client;

import io.gymmesh.client.Fold.ToolKey;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.ToolCallCompleted;
import io.gymmesh.rollout.v1.ToolCallRecord;
import io.gymmesh.rollout.v1.TurnCompleted;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What a model call saw and gave, found by following parents. Pure. */
public final class Conversations {
  /**
   * What a model call added to its conversation.
   *
   * @param call the call
   * @param items what was put before its answer, the answer, the outputs of its tool calls in the
   *     order of the calls, and its turns
   */
  record Part(ModelCallCompleted call, List<Item> items) {}

  private Conversations() {}

  /**
   * The conversation up to and including a model call, the outputs of its tools and its turns.
   *
   * @throws IllegalArgumentException no such call, or parents that form a circle
   */
  public static List<Item> conversation(Rollout rollout, String callId) {
    List<Part> parts = parts(rollout);
    List<Integer> chain = chain(rollout, callId);
    List<Item> items = new ArrayList<>();
    if (!parts.get(chain.get(0)).call().getDetached()) {
      items.addAll(rollout.getStarted().getItemsList());
    }
    chain.forEach(place -> items.addAll(parts.get(place).items()));
    return items;
  }

  /**
   * The end of the final transcript: the root agent's last model call, or the last call at all when
   * the root agent made none.
   */
  public static Optional<ModelCallCompleted> finalCall(Rollout rollout) {
    List<ModelCallCompleted> calls = rollout.getModelCallsList();
    for (int i = calls.size() - 1; i >= 0; i--) {
      if (calls.get(i).getActor().isEmpty()) {
        return Optional.of(calls.get(i));
      }
    }
    return calls.isEmpty() ? Optional.empty() : Optional.of(calls.get(calls.size() - 1));
  }

  /** The final transcript; with no model call, the items that the rollout began with. */
  public static List<Item> transcript(Rollout rollout) {
    return finalCall(rollout)
        .map(call -> conversation(rollout, call.getCallId()))
        .orElseGet(() -> rollout.getStarted().getItemsList());
  }

  /** The parts of all model calls, in their order in the rollout. */
  static List<Part> parts(Rollout rollout) {
    Map<ToolKey, Deque<Item>> outputs = new HashMap<>();
    for (ToolCallRecord record : rollout.getToolCallsList()) {
      ToolCallCompleted done = record.getCompleted();
      if (done.hasOutput()) {
        outputs.computeIfAbsent(ToolKey.of(done), key -> new ArrayDeque<>()).add(done.getOutput());
      }
    }
    Map<String, List<Item>> turns = new HashMap<>();
    for (TurnCompleted turn : rollout.getTurnsList()) {
      turns
          .computeIfAbsent(turn.getModelCallId(), key -> new ArrayList<>())
          .addAll(turn.getItemsList());
    }
    List<Part> parts = new ArrayList<>();
    for (ModelCallCompleted call : rollout.getModelCallsList()) {
      List<Item> items = new ArrayList<>(call.getContextItemsList());
      items.addAll(call.getResponse().getOutputList());
      for (Item item : call.getResponse().getOutputList()) {
        if (item.hasFunctionCall()) {
          // Several calls of one id, which only a custom agent makes, are answered in order.
          ToolKey key = new ToolKey(call.getCallId(), item.getFunctionCall().getCallId());
          Item answer = outputs.getOrDefault(key, new ArrayDeque<>()).poll();
          if (answer != null) {
            items.add(answer);
          }
        }
      }
      items.addAll(turns.getOrDefault(call.getCallId(), List.of()));
      parts.add(new Part(call, items));
    }
    return parts;
  }

  /** The places of the calls whose conversation a call continues, from the first one to itself. */
  static List<Integer> chain(Rollout rollout, String callId) {
    Map<String, Integer> places = new HashMap<>();
    for (int i = 0; i < rollout.getModelCallsCount(); i++) {
      places.put(rollout.getModelCalls(i).getCallId(), i);
    }
    ArrayDeque<Integer> chain = new ArrayDeque<>();
    String next = callId;
    while (true) {
      Integer place = places.get(next);
      if (place == null) {
        throw new IllegalArgumentException("the rollout has no model call '" + next + "'");
      }
      if (chain.size() == places.size()) {
        throw new IllegalArgumentException(
            "the parents of model call '" + next + "' form a circle");
      }
      chain.addFirst(place);
      ModelCallCompleted call = rollout.getModelCalls(place);
      if (call.getParentCallId().isEmpty() || call.getDetached()) {
        return List.copyOf(chain);
      }
      next = call.getParentCallId();
    }
  }
}
