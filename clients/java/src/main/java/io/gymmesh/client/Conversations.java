package io.gymmesh.client;

import io.gymmesh.client.Fold.ToolKey;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.ToolCallRecord;
import io.gymmesh.rollout.v1.TurnCompleted;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What a model call saw and gave, found by following parents. Pure. */
public final class Conversations {
  /**
   * The conversation that leads to a call, without the items of `started`.
   *
   * @param items its items
   * @param lastWritten by place among them, the call whose answer ends there
   * @param whole whether the items of `started` stand before it
   */
  record Thread(List<Item> items, Map<Integer, String> lastWritten, boolean whole) {}

  private Conversations() {}

  /**
   * The conversation up to and including a model call, its tools' answers and its turns.
   *
   * @throws IllegalArgumentException no such call, or parents that go in a circle
   */
  public static List<Item> conversation(Rollout rollout, String callId) {
    Thread thread = thread(rollout, callId);
    List<Item> items = new ArrayList<>();
    if (thread.whole()) {
      items.addAll(rollout.getStarted().getItemsList());
    }
    items.addAll(thread.items());
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

  static Thread thread(Rollout rollout, String callId) {
    List<ModelCallCompleted> chain = chain(rollout, callId);
    Map<ToolKey, Deque<Item>> outputs = new HashMap<>();
    for (ToolCallRecord record : rollout.getToolCallsList()) {
      if (record.getCompleted().hasOutput()) {
        ToolKey key =
            new ToolKey(record.getCompleted().getModelCallId(), record.getCompleted().getCallId());
        outputs
            .computeIfAbsent(key, k -> new ArrayDeque<>())
            .add(record.getCompleted().getOutput());
      }
    }
    List<Item> items = new ArrayList<>();
    Map<Integer, String> lastWritten = new HashMap<>();
    for (ModelCallCompleted call : chain) {
      items.addAll(call.getContextItemsList());
      List<Item> wrote = call.getResponse().getOutputList();
      items.addAll(wrote);
      if (!wrote.isEmpty()) {
        lastWritten.put(items.size() - 1, call.getCallId());
      }
      for (Item item : wrote) {
        if (item.hasFunctionCall()) {
          ToolKey key = new ToolKey(call.getCallId(), item.getFunctionCall().getCallId());
          Deque<Item> answered = outputs.get(key);
          // Two calls of one id, which only a custom agent can bring about: in order.
          if (answered != null && !answered.isEmpty()) {
            items.add(answered.remove());
          }
        }
      }
      for (TurnCompleted turn : rollout.getTurnsList()) {
        if (turn.getModelCallId().equals(call.getCallId())) {
          items.addAll(turn.getItemsList());
        }
      }
    }
    boolean whole = chain.isEmpty() || !chain.get(0).getDetached();
    return new Thread(items, lastWritten, whole);
  }

  private static List<ModelCallCompleted> chain(Rollout rollout, String callId) {
    Map<String, ModelCallCompleted> calls = new LinkedHashMap<>();
    rollout.getModelCallsList().forEach(call -> calls.put(call.getCallId(), call));
    ArrayDeque<ModelCallCompleted> chain = new ArrayDeque<>();
    String next = callId;
    while (true) {
      ModelCallCompleted call = calls.get(next);
      if (call == null) {
        throw new IllegalArgumentException("the rollout has no model call '" + next + "'");
      }
      if (chain.size() == calls.size()) {
        throw new IllegalArgumentException(
            "the parents of model call '" + next + "' go in a circle");
      }
      chain.addFirst(call);
      if (call.getParentCallId().isEmpty() || call.getDetached()) {
        return List.copyOf(chain);
      }
      next = call.getParentCallId();
    }
  }
}
