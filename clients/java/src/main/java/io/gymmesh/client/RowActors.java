package io.gymmesh.client;

import com.google.protobuf.ByteString;
import io.gymmesh.client.Conversations.Thread;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.RewardComponent;
import io.gymmesh.rollout.v1.Rollout;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * What a row holds of actors beside the root agent, in the order of their names. Pure.
 *
 * <p>A conversation of an actor has {@code items} from where it begins to speak, in the form of
 * {@code response.output}, and apart from them in {@code first_items} what it had read before.
 */
final class RowActors {
  /** By code points, which UTF-8 keeps in order and UTF-16 does not. */
  private static final Comparator<String> IN_ORDER =
      Comparator.comparing(
          ByteString::copyFromUtf8, ByteString.unsignedLexicographicalComparator());

  private final Rollout rollout;
  private final Map<String, Map<String, Object>> tokens;

  RowActors(Rollout rollout) {
    this.rollout = rollout;
    this.tokens = Tokens.byCall(rollout.getModelCallsList());
  }

  /** Each of them; empty where the root agent alone called models. */
  List<Object> list() {
    Map<String, Map<String, ModelCallCompleted>> calls = new TreeMap<>(IN_ORDER);
    for (ModelCallCompleted call : rollout.getModelCallsList()) {
      if (!call.getActor().isEmpty()) {
        calls
            .computeIfAbsent(call.getActor(), name -> new LinkedHashMap<>())
            .put(call.getCallId(), call);
      }
    }
    List<Object> actors = new ArrayList<>();
    calls.forEach((name, own) -> actors.add(actor(name, own)));
    return actors;
  }

  /**
   * One actor; its reward is the component of the verdict that is called like it. Where a trainer
   * should learn from some of its calls, these alone have tokens.
   */
  private Map<String, Object> actor(String name, Map<String, ModelCallCompleted> own) {
    Collection<ModelCallCompleted> calls = own.values();
    List<Object> models = new ArrayList<>();
    calls.stream()
        .map(ModelCallCompleted::getModel)
        .distinct()
        .sorted(IN_ORDER)
        .forEach(models::add);
    Map<String, Object> actor = new LinkedHashMap<>();
    actor.put("name", name);
    actor.put("models", models);
    actor.put("model_calls", (long) calls.size());
    boolean trainable = calls.stream().anyMatch(ModelCallCompleted::getTrainable);
    actor.put("trainable", trainable);
    for (RewardComponent part : rollout.getVerified().getVerification().getComponentsList()) {
      if (part.getName().equals(name)) {
        actor.put("reward", part.getValue());
      }
    }
    actor.put("usage", RowResponse.usage(List.copyOf(calls)));
    Set<String> wentOn = new HashSet<>();
    for (ModelCallCompleted call : calls) {
      if (!call.getDetached()) {
        wentOn.add(call.getParentCallId());
      }
      if (trainable && !call.getTrainable()) {
        tokens.remove(call.getCallId());
      }
    }
    List<Object> conversations = new ArrayList<>();
    for (ModelCallCompleted call : calls) {
      if (!wentOn.contains(call.getCallId())) {
        conversations.add(conversation(own, call));
      }
    }
    actor.put("conversations", conversations);
    return actor;
  }

  /** The conversation of an actor that ends with a call. */
  private Map<String, Object> conversation(
      Map<String, ModelCallCompleted> own, ModelCallCompleted last) {
    Thread thread = Conversations.thread(rollout, last.getCallId());
    ModelCallCompleted first = last;
    while (!first.getDetached() && own.containsKey(first.getParentCallId())) {
      first = own.get(first.getParentCallId());
    }
    String after = first.getDetached() ? "" : first.getParentCallId();
    int begins = after.isEmpty() ? 0 : Conversations.thread(rollout, after).items().size();
    List<Item> read = new ArrayList<>();
    if (thread.whole()) {
      read.addAll(rollout.getStarted().getItemsList());
    }
    read.addAll(thread.items().subList(0, begins));
    List<Object> items = Codec.writeItems(thread.items().subList(begins, thread.items().size()));
    thread
        .lastWritten()
        .forEach(
            (place, callId) -> {
              if (place >= begins) {
                RowResponse.putTokens(items.get(place - begins), tokens, callId);
              }
            });
    Map<String, Object> conversation = new LinkedHashMap<>();
    if (!after.isEmpty()) {
      conversation.put("after", after);
    }
    if (!read.isEmpty()) {
      conversation.put("first_items", Codec.writeItems(read));
    }
    conversation.put("items", items);
    return conversation;
  }
}
