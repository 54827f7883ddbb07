package io.gymmesh.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.MessageOrBuilder;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * How a JSON object is shared between a message's typed fields and its overlay. Reading takes key
 * after key out of a copy of the object; the overlay gets what is left.
 */
final class Fields {
  private Fields() {}

  /** Moves well-formed texts into the fields that have their keys' names. */
  static void takeTexts(Map<String, Object> rest, Message.Builder message, String... names) {
    for (String name : names) {
      if (isText(rest.get(name))) {
        message.setField(field(message, name), rest.remove(name));
      }
    }
  }

  /** Moves a value of this very type into the field of that name. */
  static void take(Map<String, Object> rest, Message.Builder message, String name, Class<?> type) {
    if (type.isInstance(rest.get(name))) {
      message.setField(field(message, name), rest.remove(name));
    }
  }

  /** Moves a value of one of these types into the `*_json` field of that name. */
  static void takeJson(
      Map<String, Object> rest, Message.Builder message, String name, boolean textToo) {
    Object value = rest.get(name);
    if (value instanceof Map || textToo && isText(value)) {
      message.setField(field(message, name + "_json"), store(value));
      rest.remove(name);
    }
  }

  /** Keeps what is left. */
  static void keep(Map<String, Object> rest, Message.Builder message) {
    if (!rest.isEmpty()) {
      message.setField(field(message, "overlay_json"), store(rest));
    }
  }

  /** Writes the optional fields that are set. */
  static void put(Map<String, Object> out, MessageOrBuilder message, String... names) {
    for (String name : names) {
      FieldDescriptor field = message.getDescriptorForType().findFieldByName(name);
      if (message.hasField(field)) {
        out.put(name, message.getField(field));
      }
    }
  }

  /** Adds the overlay's keys, which win over those there already. */
  static Map<String, Object> putOverlay(Map<String, Object> out, ByteString overlay) {
    if (!overlay.isEmpty()) {
      out.putAll(readObject(overlay, "overlay_json"));
    }
    return out;
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> readObject(ByteString raw, String field) {
    Object value = readField(raw, field);
    if (value instanceof Map) {
      return (Map<String, Object>) value;
    }
    throw new CodecException("holds " + Json.nameOf(value) + " where a JSON object is required")
        .within(field);
  }

  static Object readField(ByteString raw, String field) {
    return under(field, () -> Json.parse(raw.toByteArray()));
  }

  static ByteString store(Object value) {
    return ByteString.copyFrom(Json.writeBytes(value));
  }

  static boolean isText(Object value) {
    return value instanceof String text && Json.isWellFormed(text);
  }

  /** A copy of an object, or an error that names the noun. */
  @SuppressWarnings("unchecked")
  static Map<String, Object> copyOfObject(Object document, String noun) {
    if (document instanceof Map) {
      return new LinkedHashMap<>((Map<String, Object>) document);
    }
    throw new CodecException(noun + " must be a JSON object, not " + Json.nameOf(document));
  }

  /** Converts each element; an error names its index. */
  static <A, B> List<B> each(Iterable<? extends A> values, Function<? super A, ? extends B> one) {
    List<B> converted = new ArrayList<>();
    try {
      for (A value : values) {
        converted.add(one.apply(value));
      }
    } catch (CodecException error) {
      throw error.within(converted.size());
    }
    return converted;
  }

  /** Does what concerns a key; an error names the key. */
  static <T> T under(String key, java.util.function.Supplier<T> work) {
    try {
      return work.get();
    } catch (CodecException error) {
      throw error.within(key);
    }
  }

  private static FieldDescriptor field(MessageOrBuilder message, String name) {
    return message.getDescriptorForType().findFieldByName(name);
  }
}
