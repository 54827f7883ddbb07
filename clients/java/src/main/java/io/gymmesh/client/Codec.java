package io.gymmesh.client;

import com.google.protobuf.Message;
import com.google.protobuf.MessageOrBuilder;
import io.gymmesh.responses.v1.Item;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The contract's messages as JSON and back: the documents of the Responses API, without loss, and
 * rows. The rule is that of gymmesh/json/v1/json.proto, whose options are read from the
 * descriptors. Pure.
 *
 * <p>What cannot be converted is a {@link CodecException}.
 */
public final class Codec {
  private static final List<?> TEXT_TYPES = List.of("input_text", "output_text");

  private Codec() {}

  /** Reads a value of {@link Json#parse} into an empty builder, which it returns. */
  public static <B extends Message.Builder> B read(Object value, B into) {
    if (!JsonReader.read(value, into)) {
      throw new CodecException(
          into.getDescriptorForType().getName() + " is not read from " + Json.nameOf(value));
    }
    return into;
  }

  /** Writes a message as a value for {@link Json#write}. */
  public static Object write(Message message) {
    return JsonWriter.write(message);
  }

  /**
   * The plain text of a message or of a tool's answer, its text parts joined; other kinds of item,
   * images and refusals have none.
   */
  public static String textOf(Item item) {
    if (!item.hasMessage() && !item.hasFunctionCallOutput()) {
      return "";
    }
    // The overlay may hold a part of the text, so the document alone tells.
    Object content = writeObject(item).get(item.hasMessage() ? "content" : "output");
    if (!(content instanceof List<?> parts)) {
      return content instanceof String text ? text : "";
    }
    StringBuilder texts = new StringBuilder();
    for (Object part : parts) {
      if (part instanceof Map<?, ?> object
          && TEXT_TYPES.contains(object.get("type"))
          && object.get("text") instanceof String text) {
        texts.append(text);
      }
    }
    return texts.toString();
  }

  /** Writes a message that is an object. */
  @SuppressWarnings("unchecked")
  static Map<String, Object> writeObject(Message message) {
    return (Map<String, Object>) JsonWriter.write(message);
  }

  /** The keys that an object of this message has of its own. */
  static Set<String> keys(MessageOrBuilder message) {
    return Plan.of(message.getDescriptorForType()).fields().stream()
        .map(Plan.Field::key)
        .collect(Collectors.toSet());
  }

  /** Does what concerns a key or an index; an error names it. */
  static <T> T within(Object step, java.util.function.Supplier<T> work) {
    try {
      return work.get();
    } catch (CodecException error) {
      throw error.within(step);
    }
  }
}
