package io.gymmesh.client;

import io.gymmesh.client.Conversations.Thread;
import io.gymmesh.responses.v1.ResponseParams;
import io.gymmesh.responses.v1.Usage;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.StopReason;
import io.gymmesh.rollout.v1.Task;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A rollout as one Responses object, as rows hold it, and the parameters that were in force. */
final class RowResponse {
  private static final Map<String, Object> ECHOED = echoed();

  private final Rollout rollout;
  private final Map<String, Object> asked;
  private final Map<String, Object> inForce;

  RowResponse(Task task, Rollout rollout) {
    this.rollout = rollout;
    this.asked = Codec.writeParams(task.getParams());
    ResponseParams used = rollout.getStarted().getParams();
    this.inForce =
        rollout.getStarted().hasParams() ? Codec.writeParams(used) : new LinkedHashMap<>();
  }

  /** The task's own parameters, but for the input as the rollout began with them. */
  Map<String, Object> params() {
    Map<String, Object> params = new LinkedHashMap<>(asked);
    params.putAll(inForce);
    params.remove("input");
    if (asked.containsKey("input")) {
      params.put("input", asked.get("input"));
    }
    return params;
  }

  /** The whole response. */
  Map<String, Object> document() {
    ModelCallCompleted last = Conversations.finalCall(rollout).orElse(null);
    Map<String, Object> head = last == null ? Map.of() : Codec.writeHead(last.getResponse());
    Object details = truthy(head.get("incomplete_details"), cutShort());
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("id", truthy(head.get("id"), rollout.getRolloutId()));
    row.put("object", "response");
    row.put("created_at", seconds(rollout.getStartedUnixNano()));
    row.put("model", truthy(head.get("model"), last == null ? "" : last.getModel()));
    row.put("status", details != null ? "incomplete" : truthy(head.get("status"), "completed"));
    row.put("error", head.get("error"));
    row.put("incomplete_details", details);
    row.put("output", last == null ? new ArrayList<>() : output(last));
    row.put(
        "usage",
        usage(
            rollout.getModelCallsList().stream()
                .filter(call -> call.getActor().isEmpty())
                .toList()));
    ECHOED.forEach(
        (key, otherwise) -> row.put(key, inForce.get(key) == null ? otherwise : inForce.get(key)));
    return row;
  }

  static double seconds(long unixNano) {
    return unixNano / 1e9;
  }

  private Object cutShort() {
    StopReason reason = rollout.getCompleted().getStopReason();
    String cut =
        switch (reason) {
          case STOP_REASON_MAX_OUTPUT_TOKENS -> "max_output_tokens";
          case STOP_REASON_CONTENT_FILTER -> "content_filter";
          default -> null;
        };
    if (cut == null) {
      return null;
    }
    Map<String, Object> details = new LinkedHashMap<>();
    details.put("reason", cut);
    return details;
  }

  /**
   * The transcript. The calls that the root agent made and a trainer should learn from have their
   * tokens with the last item that they wrote, and no others: a reader trains all that it finds.
   */
  private List<Object> output(ModelCallCompleted last) {
    Thread thread = Conversations.thread(rollout, last.getCallId());
    List<Object> output = Codec.writeItems(thread.items());
    Map<String, Map<String, Object>> tokens = Tokens.byCall(rollout.getModelCallsList());
    for (ModelCallCompleted call : rollout.getModelCallsList()) {
      if (!call.getActor().isEmpty() || !call.getTrainable()) {
        tokens.remove(call.getCallId());
      }
    }
    thread.lastWritten().forEach((place, callId) -> putTokens(output.get(place), tokens, callId));
    return output;
  }

  /** Moves a call's tokens to the last item that the call wrote. */
  @SuppressWarnings("unchecked")
  static void putTokens(Object item, Map<String, Map<String, Object>> tokens, String callId) {
    if (item instanceof Map && tokens.containsKey(callId)) {
      ((Map<String, Object>) item).putAll(tokens.remove(callId));
    }
  }

  /** The sum over calls. */
  static Map<String, Object> usage(List<ModelCallCompleted> calls) {
    long input = 0;
    long output = 0;
    long cached = 0;
    long reasoning = 0;
    for (ModelCallCompleted call : calls) {
      Usage usage = call.getResponse().getUsage();
      input += usage.getInputTokens();
      output += usage.getOutputTokens();
      cached += usage.getCachedTokens();
      reasoning += usage.getReasoningTokens();
    }
    return Codec.writeUsage(
        Usage.newBuilder()
            .setInputTokens(input)
            .setOutputTokens(output)
            .setTotalTokens(input + output)
            .setCachedTokens(cached)
            .setReasoningTokens(reasoning)
            .build());
  }

  /** The first, unless it is null, empty, zero or false. */
  private static Object truthy(Object first, Object second) {
    boolean empty =
        first == null
            || "".equals(first)
            || Boolean.FALSE.equals(first)
            || Long.valueOf(0).equals(first)
            || first instanceof Map<?, ?> object && object.isEmpty()
            || first instanceof List<?> array && array.isEmpty();
    return empty ? second : first;
  }

  /** What the API echoes of a request in every response, with its defaults. */
  private static Map<String, Object> echoed() {
    Map<String, Object> echoed = new LinkedHashMap<>();
    for (String key :
        List.of(
            "background",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "metadata",
            "parallel_tool_calls",
            "previous_response_id",
            "prompt",
            "reasoning",
            "service_tier",
            "temperature",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
            "user")) {
      echoed.put(key, null);
    }
    echoed.put("parallel_tool_calls", true);
    echoed.put("tool_choice", "auto");
    echoed.put("tools", List.of());
    return echoed;
  }
}
