package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.responses.v1.Response;
import io.gymmesh.rollout.v1.Completed;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.StopReason;
import io.gymmesh.rollout.v1.Task;
import io.gymmesh.row.v1.ModelCall;
import io.gymmesh.row.v1.Row;
import io.gymmesh.row.v1.RowResponse;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Rows of rollouts that the vectors do not have. */
class RowsTest {
  private static final Task TASK = Task.getDefaultInstance();

  // A rollout may fail because its calls form no conversation; its row has them all the same.
  @ParameterizedTest
  @ValueSource(strings = {"unknown", "c1"})
  void aFailedRolloutWhoseCallsFormNoConversationKeepsThem(String parent) {
    Response.Builder answer = Response.newBuilder().addOutput(message("hi"));
    Rollout rollout =
        Rollout.newBuilder()
            .addModelCalls(
                ModelCallCompleted.newBuilder()
                    .setCallId("c1")
                    .setParentCallId(parent)
                    .setResponse(answer))
            .build();
    Row row = Rows.failed(TASK, Failure.getDefaultInstance(), rollout);
    ModelCall call = row.getCalls(0);
    assertEquals(0, row.getResponse().getOutputCount());
    assertEquals(1, call.getItemsCount());
    assertFalse(call.hasFirstItem());
    Rollout completed = rollout.toBuilder().setCompleted(Completed.getDefaultInstance()).build();
    assertThrows(IllegalArgumentException.class, () -> Rows.completed(TASK, completed));
  }

  private static Item message(String text) {
    String json = "{\"role\":\"assistant\",\"content\":\"" + text + "\"}";
    return Codec.read(Json.parse(json), Item.newBuilder()).build();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "{'incomplete_details': {}}    | r | completed  | {}",
        "{'incomplete_details': ''}    | r | completed  | ''",
        "{'incomplete_details': []}    | r | completed  | []",
        "{'incomplete_details': 0}     | r | completed  | 0",
        "{'incomplete_details': null}  | r | completed  | ``",
        "{'incomplete_details': 'cut'} | r | incomplete | 'cut'",
        "{'id': 'a', 'status': 'queued'} | a | queued   | ``",
        "{'id': 1, 'status': '\\ud800'} | r | completed  | ``",
      })
  void theFinalAnswerSaysThisOfItself(String answer, String id, String status, String details) {
    Object document = Json.parse(answer.replace('\'', '"'));
    RowResponse row =
        of(Codec.read(document, Response.newBuilder()), StopReason.STOP_REASON_UNSPECIFIED);
    assertEquals(id, row.getId());
    assertEquals(status, row.getStatus());
    assertEquals(details.replace('\'', '"'), row.getIncompleteDetailsJson().toStringUtf8());
  }

  @Test
  void anAnswerThatSaysNothingMayBeCutShort() {
    Response.Builder answer =
        Response.newBuilder().setOverlayJson(ByteString.copyFromUtf8("{\"incomplete_details\":0}"));
    RowResponse row = of(answer, StopReason.STOP_REASON_MAX_OUTPUT_TOKENS);
    assertEquals("incomplete", row.getStatus());
    assertEquals(
        "{\"reason\":\"max_output_tokens\"}", row.getIncompleteDetailsJson().toStringUtf8());
  }

  @Test
  void anOverlayWinsOverTheAnswersFields() {
    Response.Builder answer =
        Response.newBuilder()
            .setId("a")
            .setModel("b")
            .setOverlayJson(ByteString.copyFromUtf8("{\"id\":\"c\",\"model\":\"d\"}"));
    RowResponse row = of(answer, StopReason.STOP_REASON_UNSPECIFIED);
    assertEquals("c", row.getId());
    assertEquals("d", row.getModel());
  }

  private static RowResponse of(Response.Builder answer, StopReason stop) {
    Rollout rollout =
        Rollout.newBuilder()
            .setRolloutId("r")
            .addModelCalls(ModelCallCompleted.newBuilder().setCallId("c1").setResponse(answer))
            .setCompleted(Completed.newBuilder().setStopReason(stop))
            .build();
    return Rows.completed(TASK, rollout).getResponse();
  }
}
