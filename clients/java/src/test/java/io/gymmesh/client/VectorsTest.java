package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.errors.v1.ModelUsage;
import io.gymmesh.model.v1.TokenCapture;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.responses.v1.Response;
import io.gymmesh.responses.v1.ResponseParams;
import io.gymmesh.responses.v1.Tool;
import io.gymmesh.responses.v1.Usage;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.RolloutEvent;
import io.gymmesh.rollout.v1.Task;
import io.gymmesh.row.v1.Row;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.function.Executable;

/** The vectors of tests/contract, which clients in every language are tested with. */
class VectorsTest {
  // What details of a status there are in the vectors.
  private static final JsonFormat.TypeRegistry DETAILS =
      JsonFormat.TypeRegistry.newBuilder()
          .add(ModelUsage.getDescriptor())
          .add(ErrorInfo.getDescriptor())
          .build();
  private static final Path CONTRACT = Path.of("../../tests/contract").toAbsolutePath();

  @TestFactory
  Stream<DynamicTest> codec() throws IOException {
    return array(read("vectors/codec.json")).stream()
        .map(VectorsTest::object)
        .map(one -> dynamicTest(one.get("noun") + ": " + one.get("about"), () -> codecCase(one)));
  }

  private static void codecCase(Map<String, Object> one) throws IOException {
    Object document = Json.parse((String) one.get("json"));
    Object said = one.get("message");
    Message.Builder noun =
        switch ((String) one.get("noun")) {
          case "item" -> Item.newBuilder();
          case "tool" -> Tool.newBuilder();
          case "usage" -> Usage.newBuilder();
          case "params" -> ResponseParams.newBuilder();
          case "response" -> Response.newBuilder();
          default -> throw new AssertionError("no such noun: " + one.get("noun"));
        };
    Message message = proto(said, noun.clone());
    assertSame(message, Codec.read(document, noun).build());
    assertEquals(document, Codec.write(message));
  }

  @TestFactory
  Stream<DynamicTest> tasks() throws IOException {
    Map<String, Object> file = object(read("vectors/tasks.json"));
    TaskReader reader = new TaskReader("default_environment", "default_agent");
    Stream<DynamicTest> rows =
        array(file.get("rows")).stream()
            .map(VectorsTest::object)
            .map(
                one ->
                    dynamicTest(
                        (String) one.get("about"),
                        () ->
                            assertSame(
                                proto(one.get("task"), Task.newBuilder()),
                                reader.task((String) one.get("row")))));
    Stream<DynamicTest> seeds =
        array(file.get("seeds")).stream()
            .map(VectorsTest::object)
            .map(
                one ->
                    dynamicTest(
                        "seed " + one.get("seed") + ", repeat " + one.get("repeat_index"),
                        () ->
                            assertEquals(
                                Long.parseLong((String) one.get("sent")),
                                TaskReader.repeatSeed(
                                    Long.parseLong((String) one.get("seed")),
                                    ((Long) one.get("repeat_index")).intValue()))));
    return Stream.concat(rows, seeds);
  }

  @TestFactory
  Stream<DynamicTest> errors() throws IOException {
    return array(read("vectors/errors.json")).stream()
        .map(VectorsTest::object)
        .map(one -> dynamicTest((String) one.get("reason"), () -> errorCase(one)));
  }

  private static void errorCase(Map<String, Object> one) {
    Status.Code code = Status.Code.valueOf((String) one.get("code"));
    com.google.rpc.Status status =
        com.google.rpc.Status.newBuilder()
            .setCode(code.value())
            .addDetails(
                Any.pack(
                    ErrorInfo.newBuilder()
                        .setDomain("gymmesh")
                        .setReason((String) one.get("reason"))
                        .putMetadata("key", "value")
                        .build()))
            .build();
    MeshException error = MeshException.from(StatusProto.toStatusRuntimeException(status));
    assertEquals(one.get("reason"), error.reasonName());
    assertEquals(one.get("number"), (long) error.reason().getNumber());
    assertEquals(one.get("retry_safe"), error.retrySafe());
    assertEquals("BOUNDARY_" + one.get("boundary"), error.boundary().name());
    assertEquals(Map.of("key", "value"), error.metadata());
    assertEquals(code, MeshException.of(error.reason(), "", Map.of()).code());
  }

  @Test
  void everyReasonHasAVector() throws IOException {
    List<Object> vectors = array(read("vectors/errors.json"));
    // Besides UNSPECIFIED and what Java adds for unknown numbers.
    assertEquals(ErrorReason.values().length - 2, vectors.size());
  }

  @TestFactory
  Stream<DynamicTest> folds() throws IOException {
    List<Path> files = new ArrayList<>();
    try (var found = Files.newDirectoryStream(CONTRACT.resolve("fold_vectors"), "*.json")) {
      found.forEach(files::add);
    }
    assertTrue(!files.isEmpty(), "there are fold vectors");
    return files.stream()
        .sorted()
        .map(file -> dynamicTest(file.getFileName().toString(), () -> foldCase(file)));
  }

  private static void foldCase(Path file) throws IOException {
    Map<String, Object> vector = object(Json.parse(Files.readAllBytes(file)));
    String rule = (String) vector.get("violates");
    if (rule != null) {
      StreamViolation violation = assertThrows(StreamViolation.class, () -> fold(vector));
      assertEquals(rule, violation.rule());
      return;
    }
    Rollout rollout = fold(vector);
    assertEquals(proto(vector.get("rollout"), Rollout.newBuilder()), rollout);
    object(vector.get("conversations"))
        .forEach(
            (call, items) ->
                assertEquals(items, written(Conversations.conversation(rollout, call))));
    assertEquals(vector.get("transcript"), written(Conversations.transcript(rollout)));
  }

  private static List<Object> written(List<Item> items) {
    return items.stream().<Object>map(Codec::write).toList();
  }

  @TestFactory
  Stream<DynamicTest> rows() throws IOException {
    Map<String, Object> file = object(read("vectors/rows.json"));
    Task task = proto(file.get("task"), Task.newBuilder());
    return array(file.get("rows")).stream()
        .map(VectorsTest::object)
        .map(
            one ->
                dynamicTest(
                    (String) one.get("fold_vector"),
                    () -> {
                      Rollout rollout =
                          fold(object(read("fold_vectors/" + one.get("fold_vector") + ".json")));
                      Row row =
                          rollout.hasFailed()
                              ? Rows.failed(task, rollout.getFailed().getFailure(), rollout)
                              : Rows.completed(task, rollout);
                      Object written = Codec.write(row);
                      assertEquals(one.get("row"), written);
                      assertEquals(written, Json.parse(Json.write(written)));
                      Row again = Codec.read(written, Row.newBuilder()).build();
                      assertEquals(written, Codec.write(again));
                      assertEquals(row.getCallsCount(), again.getCallsCount());
                    }));
  }

  @TestFactory
  Stream<DynamicTest> answers() throws IOException {
    Map<String, Object> file = object(read("vectors/rows.json"));
    Task task = proto(file.get("task"), Task.newBuilder());
    return array(file.get("answers")).stream()
        .map(VectorsTest::object)
        .map(
            one ->
                dynamicTest(
                    (String) one.get("about"),
                    () -> {
                      Rollout rollout = proto(one.get("rollout"), Rollout.newBuilder());
                      Row row = Rows.completed(task, rollout);
                      assertEquals(one.get("response"), Codec.write(row.getResponse()));
                    }));
  }

  @TestFactory
  Stream<DynamicTest> sums() throws IOException {
    Map<String, Object> file = object(read("vectors/rows.json"));
    Task task = proto(file.get("task"), Task.newBuilder());
    return array(file.get("sums")).stream()
        .map(VectorsTest::object)
        .map(
            one ->
                dynamicTest(
                    (String) one.get("about"),
                    () -> {
                      Rollout rollout = proto(one.get("rollout"), Rollout.newBuilder());
                      assertEquals(one.get("row"), Codec.write(Rows.completed(task, rollout)));
                    }));
  }

  @TestFactory
  Stream<DynamicTest> logprobs() throws IOException {
    return array(object(read("vectors/rows.json")).get("logprobs")).stream()
        .map(VectorsTest::object)
        .map(
            one ->
                dynamicTest(
                    (String) one.get("about"),
                    () -> {
                      Object document = Json.parse("{\"logprobs\":" + one.get("json") + "}");
                      ByteString read =
                          Codec.read(document, TokenCapture.newBuilder()).getLogprobs();
                      Object bytes = one.get("bytes") == null ? "" : one.get("bytes");
                      assertEquals(bytes, Base64.getEncoder().encodeToString(read.toByteArray()));
                    }));
  }

  @TestFactory
  Stream<DynamicTest> tokens() throws IOException {
    return array(object(read("vectors/rows.json")).get("tokens")).stream()
        .map(VectorsTest::object)
        .map(
            one ->
                dynamicTest(
                    (String) one.get("about"),
                    () -> {
                      Rollout rollout = proto(one.get("rollout"), Rollout.newBuilder());
                      Executable write =
                          () -> Codec.write(Rows.completed(Task.getDefaultInstance(), rollout));
                      if ((boolean) one.get("has_row")) {
                        write.execute();
                      } else {
                        assertThrows(CodecException.class, write);
                      }
                    }));
  }

  private static Rollout fold(Map<String, Object> vector) throws IOException {
    Fold fold =
        new Fold(
            (String) vector.get("rollout_id"),
            ((Long) vector.get("attempt")).intValue(),
            (String) vector.getOrDefault("run_id", ""),
            (String) vector.getOrDefault("task_id", ""),
            ((Long) vector.getOrDefault("repeat_index", 0L)).intValue());
    List<RolloutEvent> events = new ArrayList<>();
    for (Object event : (List<?>) vector.get("events")) {
      events.add(proto(event, RolloutEvent.newBuilder()));
    }
    events.forEach(fold::add);
    return fold.finish();
  }

  /** Equal, but for the order of keys in bytes that hold JSON. */
  private static void assertSame(Message expected, Message actual) {
    assertEquals(plain(expected), plain(actual));
  }

  private static Object plain(Object value) {
    if (value instanceof Message message) {
      Map<String, Object> plain = new LinkedHashMap<>();
      for (Map.Entry<FieldDescriptor, Object> entry : message.getAllFields().entrySet()) {
        String name = entry.getKey().getName();
        boolean json = name.endsWith("json") && entry.getValue() instanceof ByteString;
        plain.put(
            name,
            json
                ? Json.parse(((ByteString) entry.getValue()).toByteArray())
                : plain(entry.getValue()));
      }
      return plain;
    }
    return value instanceof List<?> list ? list.stream().map(VectorsTest::plain).toList() : value;
  }

  @SuppressWarnings("unchecked")
  private static <M extends Message> M proto(Object json, Message.Builder builder)
      throws IOException {
    JsonFormat.parser().usingTypeRegistry(DETAILS).merge(Json.write(json), builder);
    return (M) builder.build();
  }

  private static Object read(String name) throws IOException {
    return Json.parse(Files.readAllBytes(CONTRACT.resolve(name)));
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> object(Object value) {
    return (Map<String, Object>) value;
  }

  @SuppressWarnings("unchecked")
  private static List<Object> array(Object value) {
    List<Object> array = (List<Object>) value;
    assertTrue(!array.isEmpty(), "there are vectors");
    return array;
  }
}
