package io.gymmesh.client;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import io.gymmesh.client.Conversations.Part;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.Started;
import io.gymmesh.rollout.v1.StopReason;
import io.gymmesh.rollout.v1.Task;
import io.gymmesh.rollout.v1.ToolCallRecord;
import io.gymmesh.rollout.v1.TurnCompleted;
import io.gymmesh.rollout.v1.Verification;
import io.gymmesh.rollout.v1.VerificationStatus;
import io.gymmesh.row.v1.ModelCall;
import io.gymmesh.row.v1.Row;
import io.gymmesh.row.v1.RowFailure;
import io.gymmesh.row.v1.RowMetadata;
import io.gymmesh.row.v1.RowResponse;
import io.gymmesh.row.v1.RowStatus;
import io.gymmesh.row.v1.ToolCall;
import io.gymmesh.row.v1.Turn;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * Rollouts as rows of gymmesh/row/v1/row.proto, which {@link Codec#write} turns into JSON. Pure.
 *
 * <p>A row of a failed rollout has no reward, and none may be inferred.
 */
public final class Rows {
  // The parameters that the API repeats in every response, with its defaults.
  private static final String REPEATED =
      """
      {"background": null, "instructions": null, "max_output_tokens": null,
       "max_tool_calls": null, "metadata": null, "parallel_tool_calls": true,
       "previous_response_id": null, "prompt": null, "reasoning": null, "service_tier": null,
       "temperature": null, "text": null, "tool_choice": "auto", "tools": [],
       "top_logprobs": null, "top_p": null, "truncation": null, "user": null}
      """;
  // How far above 0 a log probability may be.
  private static final double LOGPROB_ROUNDING = 1e-3;
  private static final ByteString EMPTY = ByteString.copyFromUtf8("{}");

  private final Task task;
  private final Rollout rollout;
  private final Row.Builder row = Row.newBuilder();

  private Rows(Task task, Rollout rollout) {
    this.task = task;
    this.rollout = rollout;
  }

  /**
   * The row of a completed rollout.
   *
   * @throws IllegalArgumentException it is not completed, its calls form no conversation, or it
   *     holds what is not JSON
   */
  public static Row completed(Task task, Rollout rollout) {
    if (!rollout.hasCompleted()) {
      throw new IllegalArgumentException("only a completed rollout has such a row");
    }
    Rows made = new Rows(task, rollout);
    copy(made.row, rollout.getVerified(), rollout.getCompleted(), rollout, task);
    if (!rollout.hasVerified()) {
      made.row.setVerification(
          Verification.newBuilder()
              .setStatus(VerificationStatus.VERIFICATION_STATUS_SKIPPED)
              .setReason("the agent sent no verdict"));
    }
    if (made.row.getVerification().hasReward()) {
      made.row.setReward(made.row.getVerification().getReward());
    }
    return made.row(com.google.rpc.Status.getDefaultInstance());
  }

  /**
   * The row of a failed rollout, with what was known of it before.
   *
   * @throws IllegalArgumentException it holds what is not JSON
   */
  public static Row failed(Task task, Failure failure, Rollout partial) {
    Rows made = new Rows(task, partial);
    copy(made.row, partial, task);
    ErrorInfo info = detail(failure.getStatus(), ErrorInfo.getDefaultInstance());
    RowStatus.Builder status = copy(RowStatus.newBuilder(), failure.getStatus(), info);
    made.row.setFailure(copy(RowFailure.newBuilder(), failure).setStatus(status));
    return made.row(failure.getStatus());
  }

  /**
   * Gives each field the value of the first of these messages that has one of its name and type.
   */
  private static <B extends Message.Builder> B copy(B into, Message... from) {
    for (FieldDescriptor field : into.getDescriptorForType().getFields()) {
      for (Message message : from) {
        FieldDescriptor same = message.getDescriptorForType().findFieldByName(field.getName());
        if (same == null || !isSameType(same, field)) {
          continue;
        }
        boolean has =
            same.isRepeated() ? message.getRepeatedFieldCount(same) > 0 : message.hasField(same);
        if (has && field.isMapField()) {
          copyMap(into, field, (List<?>) message.getField(same));
        } else if (has) {
          into.setField(field, message.getField(same));
        }
        if (has) {
          break;
        }
      }
    }
    return into;
  }

  private static boolean isSameType(FieldDescriptor a, FieldDescriptor b) {
    if (a.isMapField() || b.isMapField()) {
      return a.isMapField() && b.isMapField(); // all are of texts
    }
    return a.getType() == b.getType()
        && a.isRepeated() == b.isRepeated()
        && (!Plan.isMessage(a) || a.getMessageType() == b.getMessageType())
        && (a.getType() != FieldDescriptor.Type.ENUM || a.getEnumType() == b.getEnumType());
  }

  /** Copies entries, whose type is another one in each message. */
  private static void copyMap(Message.Builder into, FieldDescriptor field, List<?> entries) {
    for (Object entry : entries) {
      Message.Builder one = into.newBuilderForField(field);
      for (FieldDescriptor part : ((Message) entry).getDescriptorForType().getFields()) {
        FieldDescriptor own = one.getDescriptorForType().findFieldByNumber(part.getNumber());
        one.setField(own, ((Message) entry).getField(part));
      }
      into.addRepeatedField(field, one.build());
    }
  }

  /** A status's first detail of a message's type, or the message. */
  static <M extends Message> M detail(com.google.rpc.Status status, M otherwise) {
    for (Any detail : status.getDetailsList()) {
      if (detail.is(otherwise.getClass())) {
        try {
          @SuppressWarnings("unchecked")
          M found = (M) detail.unpack(otherwise.getClass());
          return found;
        } catch (InvalidProtocolBufferException e) {
          continue; // a detail that cannot be read says nothing
        }
      }
    }
    return otherwise;
  }

  private Row row(com.google.rpc.Status failed) {
    Started started = rollout.getStarted();
    row.setEnvironment(either(started.getEnvironment(), row.getEnvironment()));
    row.setAgent(either(started.getAgent(), row.getAgent()));
    row.setProgramName(started.getProgram().getName());
    row.setProgramVersion(started.getProgram().getVersion());
    if (rollout.hasStarted() && !beginsWithInput()) {
      row.addAllFirstItems(started.getItemsList());
    }
    row.addAllModelUsage(RowSums.usageByModel(rollout, failed));
    row.addAllActors(RowSums.actors(rollout, row.getVerification()));
    for (TurnCompleted turn : rollout.getTurnsList()) {
      row.addTurns(copy(Turn.newBuilder(), turn));
    }
    for (ToolCallRecord record : rollout.getToolCallsList()) {
      row.addToolCalls(copy(ToolCall.newBuilder(), record.getCompleted()));
    }
    RowResponse.Builder response = answer();
    putCalls(response);
    putParams(response);
    row.setResponse(response);
    putExtras();
    return row.build();
  }

  private static String either(String first, String second) {
    return first.isEmpty() ? second : first;
  }

  /** Whether the conversation began with the task's input and no more. */
  private boolean beginsWithInput() {
    Started started = rollout.getStarted();
    if (!task.getParams().hasInputText()) {
      return started.getItemsList().equals(task.getParams().getInputList());
    }
    return started.getItemsCount() == 1
        && started.getItems(0).getMessage().getRole().equals("user")
        && Codec.textOf(started.getItems(0)).equals(task.getParams().getInputText());
  }

  /** The model calls, and the parts of those that lead to the final one as the output. */
  private void putCalls(RowResponse.Builder response) {
    List<Part> parts = Conversations.parts(rollout);
    Map<Integer, Integer> places = new LinkedHashMap<>();
    for (int call : finalChain()) {
      places.put(call, response.getOutputCount());
      response.addAllOutput(parts.get(call).items());
    }
    for (int i = 0; i < parts.size(); i++) {
      ModelCallCompleted done = parts.get(i).call();
      checkTokens(done);
      ModelCall.Builder call =
          copy(ModelCall.newBuilder(), done, done.getResponse())
              .setItemCount(parts.get(i).items().size())
              .setContextCount(done.getContextItemsCount())
              .setAnswerCount(done.getResponse().getOutputCount());
      if (places.containsKey(i)) {
        call.setFirstItem(places.get(i));
      } else {
        call.addAllItems(parts.get(i).items());
      }
      row.addCalls(call);
    }
  }

  /** Refuses log probabilities that no reader of rows takes: too many, too few, or positive. */
  private static void checkTokens(ModelCallCompleted call) {
    ByteString sampled = call.getTokens().getOutputTokenIds();
    ByteString known = call.getTokens().getLogprobs();
    String place = "call " + call.getCallId() + ": ";
    if (!known.isEmpty() && known.size() != sampled.size()) {
      throw new CodecException(
          place
              + String.format(
                  "there are %d bytes of token ids and %d of log probabilities",
                  sampled.size(), known.size()));
    }
    ByteBuffer numbers = known.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    while (numbers.remaining() >= Float.BYTES) {
      float one = numbers.getFloat();
      if (one > LOGPROB_ROUNDING && Float.isFinite(one)) {
        throw new CodecException(place + "the log probability " + one + " is positive");
      }
    }
  }

  /** The places of the calls that lead to the final one. */
  private List<Integer> finalChain() {
    Optional<ModelCallCompleted> last = Conversations.finalCall(rollout);
    try {
      return last.map(call -> Conversations.chain(rollout, call.getCallId())).orElse(List.of());
    } catch (IllegalArgumentException error) {
      // A rollout may fail because its calls form no conversation; its row has them all the same.
      if (row.hasFailure()) {
        return List.of();
      }
      throw error;
    }
  }

  /** What the final call's answer says of itself. */
  private RowResponse.Builder answer() {
    ModelCallCompleted last =
        Conversations.finalCall(rollout).orElse(ModelCallCompleted.getDefaultInstance());
    // The overlay may hold these where they are not as the API has them.
    Map<String, Object> head =
        Codec.writeObject(last.getResponse().toBuilder().clearOutput().clearUsage().build());
    RowResponse.Builder response =
        RowResponse.newBuilder()
            .setId(either(text(head.get("id")), rollout.getRolloutId()))
            .setObject("response")
            .setCreatedAt(RowSums.startedAt(rollout))
            .setModel(either(text(head.get("model")), last.getModel()))
            .setStatus(either(text(head.get("status")), "completed"))
            .setUsage(RowSums.usage(RowSums.callsOf(rollout, "")));
    if (head.get("error") != null) {
      response.setErrorJson(stored(head.get("error")));
    }
    Object details = head.get("incomplete_details");
    Object cut = cutShort(rollout.getCompleted().getStopReason());
    if (cut != null && saysNothing(details)) {
      details = cut;
    }
    if (!saysNothing(details)) {
      response.setStatus("incomplete");
    }
    if (row.hasFailure()) {
      response.setStatus("failed");
    }
    if (details != null) {
      response.setIncompleteDetailsJson(stored(details));
    }
    return response;
  }

  /** A text that a field can hold; empty where the answer has something else in its place. */
  private static String text(Object value) {
    return Json.isText(value) ? (String) value : "";
  }

  /** Whether a value is null, false, zero or empty. */
  private static boolean saysNothing(Object value) {
    return value == null
        || value.equals("")
        || value.equals(false)
        || value instanceof Number number && number.doubleValue() == 0
        || value instanceof List<?> list && list.isEmpty()
        || value instanceof Map<?, ?> object && object.isEmpty();
  }

  private static Object cutShort(StopReason reason) {
    return switch (reason) {
      case STOP_REASON_MAX_OUTPUT_TOKENS -> Map.of("reason", "max_output_tokens");
      case STOP_REASON_CONTENT_FILTER -> Map.of("reason", "content_filter");
      default -> null;
    };
  }

  /**
   * The parameters that were in force, but for the input, which is the task's; the response repeats
   * them.
   */
  private void putParams(RowResponse.Builder response) {
    Map<String, Object> inForce =
        rollout.getStarted().hasParams()
            ? Codec.writeObject(rollout.getStarted().getParams())
            : Map.of();
    Map<String, Object> document = Codec.writeObject(task.getParams());
    boolean given = document.containsKey("input");
    Object input = document.get("input");
    document.putAll(inForce);
    document.remove("input");
    if (given) {
      document.put("input", input);
    }
    row.setResponsesCreateParamsJson(stored(document));
    Map<String, Object> repeated = Json.parseObject(ByteString.copyFromUtf8(REPEATED));
    // A null asks for the default, which the API then repeats.
    repeated.replaceAll((key, value) -> inForce.get(key) == null ? value : inForce.get(key));
    response.setOverlayJson(stored(repeated));
  }

  /**
   * The task's other keys, then those of the evidence whose names are free. The task's keys that
   * are the row's own are kept apart; its `metadata` is merged with the row's.
   */
  private void putExtras() {
    RowMetadata.Builder metadata = RowSums.metadata(rollout, row.hasReward());
    Set<String> own = Codec.keys(row);
    Map<String, Object> free =
        Codec.within("payload_json", () -> Json.parseObject(orEmpty(task.getPayloadJson())));
    Map<String, Object> kept = new LinkedHashMap<>(free);
    free.keySet().removeAll(own);
    kept.keySet().retainAll(own);
    if (kept.get("metadata") instanceof Map<?, ?> theirs) {
      Map<String, Object> hidden = new LinkedHashMap<>();
      Map<String, Object> beside = new LinkedHashMap<>();
      Set<String> columns = Codec.keys(metadata);
      theirs.forEach(
          (key, value) -> (columns.contains(key) ? hidden : beside).put((String) key, value));
      kept.remove("metadata");
      if (!hidden.isEmpty()) {
        kept.put("metadata", hidden);
      }
      metadata.setOverlayJson(storedUnlessEmpty(beside));
    }
    ByteString evidence = orEmpty(row.getVerification().getEvidenceJson());
    if (Codec.within("evidence", () -> Json.parse(evidence.toByteArray()))
        instanceof Map<?, ?> found) {
      found.forEach(
          (key, value) -> {
            if (!own.contains(key) && !free.containsKey(key)) {
              free.put((String) key, value);
            }
          });
    }
    row.setMetadata(metadata);
    row.setTaskExtrasJson(storedUnlessEmpty(kept));
    row.setOverlayJson(storedUnlessEmpty(free));
  }

  private static ByteString orEmpty(ByteString json) {
    return json.isEmpty() ? EMPTY : json;
  }

  private static ByteString stored(Object value) {
    return ByteString.copyFrom(Json.writeBytes(value));
  }

  private static ByteString storedUnlessEmpty(Map<String, Object> object) {
    return object.isEmpty() ? ByteString.EMPTY : stored(object);
  }
}
