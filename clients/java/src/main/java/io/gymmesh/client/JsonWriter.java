package io.gymmesh.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.MessageOrBuilder;
import io.gymmesh.client.Plan.Field;
import io.gymmesh.json.v1.BytesForm;
import io.gymmesh.json.v1.Marker;
import io.gymmesh.json.v1.Shape;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Writes messages as JSON by the contract's rule. */
final class JsonWriter {
  private static final String UNKNOWN_KIND =
      "holds a kind that this version of the contract does not know";

  private JsonWriter() {}

  static Object write(MessageOrBuilder message) {
    Plan plan = Plan.of(message.getDescriptorForType());
    return switch (plan.shape()) {
      case SHAPE_UNION -> union(message);
      case SHAPE_LIST -> value(plan.fields().get(0), message);
      case SHAPE_NUMBER -> {
        FieldDescriptor set =
            message.getOneofFieldDescriptor(Plan.oneofOf(message.getDescriptorForType()));
        if (set == null) {
          throw new CodecException("holds no number");
        }
        yield message.getField(set) instanceof Double real ? finite(real) : message.getField(set);
      }
      case SHAPE_WHOLE -> {
        Object json = message.getField(message.getDescriptorForType().findFieldByName("json"));
        yield Codec.within("json", () -> Json.parse(((ByteString) json).toByteArray()));
      }
      default -> object(plan, message, new LinkedHashMap<>());
    };
  }

  private static Object union(MessageOrBuilder message) {
    FieldDescriptor member =
        message.getOneofFieldDescriptor(Plan.oneofOf(message.getDescriptorForType()));
    if (member == null) {
      throw new CodecException(UNKNOWN_KIND);
    }
    Message inner = (Message) message.getField(member);
    Plan plan = Plan.of(member.getMessageType());
    if (plan.shape() == Shape.SHAPE_WHOLE) {
      return write(inner);
    }
    Map<String, Object> out = new LinkedHashMap<>();
    if (plan.typeOmitted() == null || !(boolean) inner.getField(plan.typeOmitted())) {
      out.put("type", member.getName());
    }
    return object(plan, inner, out);
  }

  private static Map<String, Object> object(
      Plan plan, MessageOrBuilder message, Map<String, Object> out) {
    for (Field field : plan.fields()) {
      Codec.within(
          field.key(),
          () -> {
            put(out, field, message);
            return null;
          });
    }
    if (plan.overlay() != null) {
      ByteString overlay = (ByteString) message.getField(plan.overlay());
      if (!overlay.isEmpty()) {
        out.putAll(Codec.within(Plan.OVERLAY, () -> Json.parseObject(overlay)));
      }
    }
    return out;
  }

  /** Adds a field, where it is written. */
  private static void put(Map<String, Object> out, Field field, MessageOrBuilder message) {
    boolean has = has(field, message);
    Object value;
    if (field.json().getMarker() == Marker.MARKER_EMPTY_LIST) {
      if (!has) {
        return;
      }
      value = new ArrayList<>();
    } else if (field.text() != null && message.hasField(field.text())) {
      if (has) {
        throw new CodecException("given both as text and as a list");
      }
      value = message.getField(field.text());
    } else if (field.omitted() != null && !has) {
      if ((boolean) message.getField(field.omitted())) {
        return;
      }
      value = new ArrayList<>();
    } else if (has) {
      value = value(field, message);
    } else if (field.json().getAlways()) {
      value = field.of().hasPresence() ? null : value(field, message);
    } else {
      return;
    }
    if (field.json().getWithin().isEmpty()) {
      out.put(field.key(), value);
    } else {
      Map<String, Object> inner = new LinkedHashMap<>();
      inner.put(field.key(), value);
      out.put(field.json().getWithin(), inner);
    }
  }

  /** Whether there is something to write. */
  private static boolean has(Field field, MessageOrBuilder message) {
    if (field.of().isRepeated()) {
      return message.getRepeatedFieldCount(field.of()) > 0;
    }
    if (!message.hasField(field.of())) {
      return false;
    }
    return !field.is(Shape.SHAPE_NUMBER)
        || ((Message) message.getField(field.of()))
            .hasOneof(Plan.oneofOf(field.of().getMessageType()));
  }

  /** What a field holds, be it empty. */
  private static Object value(Field field, MessageOrBuilder message) {
    if (field.of().isMapField()) {
      Map<String, Object> map = new LinkedHashMap<>();
      for (Object entry : (List<?>) message.getField(field.of())) {
        FieldDescriptor key = field.of().getMessageType().findFieldByNumber(1);
        FieldDescriptor text = field.of().getMessageType().findFieldByNumber(2);
        map.put((String) ((Message) entry).getField(key), ((Message) entry).getField(text));
      }
      return Json.sorted(map);
    }
    if (field.of().isRepeated()) {
      return each((List<?>) message.getField(field.of()), one -> single(field, one));
    }
    Object value = single(field, message.getField(field.of()));
    String type = field.json().getPartType();
    if (type.isEmpty()) {
      return value;
    }
    return each(
        (List<?>) value,
        text -> {
          Map<String, Object> part = new LinkedHashMap<>();
          part.put("type", type);
          part.put("text", text);
          return part;
        });
  }

  private static List<Object> each(List<?> values, Function<Object, Object> one) {
    List<Object> written = new ArrayList<>(values.size());
    for (Object value : values) {
      written.add(Codec.within(written.size(), () -> one.apply(value)));
    }
    return written;
  }

  private static Object single(Field field, Object held) {
    return switch (field.of().getType()) {
      case MESSAGE -> write((Message) held);
      case ENUM -> name((EnumValueDescriptor) held);
      case BYTES -> bytes(field, (ByteString) held);
      case INT32, SINT32, SFIXED32 -> ((Integer) held).longValue();
      case UINT32, FIXED32 -> Integer.toUnsignedLong((Integer) held);
      case UINT64, FIXED64 -> {
        long value = (Long) held;
        // As an Object each, or both would become a number of one type.
        yield value >= 0 ? (Object) value : new BigInteger(Long.toUnsignedString(value));
      }
      case FLOAT, DOUBLE -> finite(((Number) held).doubleValue());
      default -> held;
    };
  }

  private static Object finite(double real) {
    if (!Double.isFinite(real)) {
      throw new CodecException(real + " is not a JSON number");
    }
    return real;
  }

  private static String name(EnumValueDescriptor value) {
    // The library makes up a value for a number that the contract does not have.
    return value.getIndex() < 0
        ? String.valueOf(value.getNumber())
        : value.getName().substring(Plan.prefixOf(value.getType()).length());
  }

  private static Object bytes(Field field, ByteString held) {
    byte[] bytes = held.toByteArray();
    if (field.holdsJson()) {
      boolean none = held.isEmpty() && !field.of().hasPresence();
      return none ? new LinkedHashMap<>() : Json.parse(bytes);
    }
    BytesForm form = field.json().getBytes();
    return switch (form) {
      case BYTES_FORM_CUT_TEXT -> new String(bytes, StandardCharsets.UTF_8);
      case BYTES_FORM_INT32, BYTES_FORM_FLOAT32 ->
          numbers(bytes, form == BytesForm.BYTES_FORM_FLOAT32);
      case BYTES_FORM_HEX -> HexFormat.of().formatHex(bytes);
      case BYTES_FORM_BASE64 -> Base64.getEncoder().encodeToString(bytes);
      default -> Json.decode(bytes);
    };
  }

  private static List<Object> numbers(byte[] packed, boolean real) {
    if (packed.length % Integer.BYTES != 0) {
      throw new CodecException(packed.length + " bytes are not whole numbers of 4 bytes");
    }
    ByteBuffer from = ByteBuffer.wrap(packed).order(ByteOrder.LITTLE_ENDIAN);
    List<Object> numbers = new ArrayList<>(packed.length / Integer.BYTES);
    while (from.hasRemaining()) {
      if (real) {
        float number = from.getFloat();
        numbers.add(Float.isFinite(number) ? (double) number : null);
      } else {
        long id = from.getInt();
        if (id < 0) {
          throw new CodecException(id + " is negative").within(numbers.size());
        }
        numbers.add(id);
      }
    }
    return numbers;
  }
}
