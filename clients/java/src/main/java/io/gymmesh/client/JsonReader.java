package io.gymmesh.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.EnumDescriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.gymmesh.client.Plan.Field;
import io.gymmesh.json.v1.BytesForm;
import io.gymmesh.json.v1.JsonValues;
import io.gymmesh.json.v1.Marker;
import io.gymmesh.json.v1.Shape;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Reads messages from JSON by the contract's rule. */
final class JsonReader {
  private static final long UNSIGNED_32 = 0xFFFF_FFFFL;

  private JsonReader() {}

  /** Reads a value into an empty message of any shape; returns whether it fits. */
  static boolean read(Object value, Message.Builder into) {
    Plan plan = Plan.of(into.getDescriptorForType());
    switch (plan.shape()) {
      case SHAPE_UNION -> readUnion(value, into);
      case SHAPE_LIST -> {
        return set(plan.fields().get(0), value, into);
      }
      case SHAPE_NUMBER -> {
        for (Field member : plan.fields()) {
          boolean real = member.of().getType() == FieldDescriptor.Type.DOUBLE;
          if (real == value instanceof Double) {
            return set(member, value, into);
          }
        }
        return false;
      }
      case SHAPE_WHOLE -> readWhole(value, into);
      default -> {
        if (!(value instanceof Map<?, ?> object)) {
          return false;
        }
        readObject(plan, copy(object), into);
      }
    }
    return true;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> copy(Map<?, ?> object) {
    return new LinkedHashMap<>((Map<String, Object>) object);
  }

  private static void readWhole(Object value, Message.Builder into) {
    if (value instanceof Map<?, ?> object && Json.isText(object.get("type"))) {
      into.setField(named(into, "type"), object.get("type"));
    }
    into.setField(named(into, "json"), stored(value));
  }

  private static FieldDescriptor named(Message.Builder message, String name) {
    return message.getDescriptorForType().findFieldByName(name);
  }

  private static ByteString stored(Object value) {
    return ByteString.copyFrom(Json.writeBytes(value));
  }

  /** Reads into the member that the object's `type` names, else into the one that takes all. */
  private static void readUnion(Object value, Message.Builder into) {
    Map<?, ?> object = value instanceof Map<?, ?> given ? given : Map.of();
    boolean untyped = !object.containsKey("type") && object.containsKey("role");
    for (Field member : Plan.of(into.getDescriptorForType()).fields()) {
      Plan plan = Plan.of(member.of().getMessageType());
      Message.Builder inner = into.newBuilderForField(member.of());
      boolean omitted = untyped && plan.typeOmitted() != null;
      if (plan.shape() == Shape.SHAPE_WHOLE) {
        readWhole(value, inner);
      } else if (omitted || member.of().getName().equals(object.get("type"))) {
        if (omitted) {
          inner.setField(plan.typeOmitted(), true);
        }
        Map<String, Object> rest = copy(object);
        rest.remove("type");
        readObject(plan, rest, inner);
      } else {
        continue;
      }
      into.setField(member.of(), inner.build());
      return;
    }
  }

  /** Takes key after key out of an object; the rest is the overlay. */
  private static void readObject(Plan plan, Map<String, Object> rest, Message.Builder into) {
    for (Field field : plan.fields()) {
      var oneof = field.of().getRealContainingOneof();
      if (oneof != null && into.hasOneof(oneof)) {
        continue;
      }
      boolean taken = Codec.within(field.key(), () -> take(field, rest, into));
      if (!taken && field.omitted() != null) {
        into.setField(field.omitted(), true);
      }
    }
    if (plan.overlay() != null && !rest.isEmpty()) {
      into.setField(plan.overlay(), stored(rest));
    }
  }

  /** Moves the value of a field's key from the object into the message, where it fits. */
  private static boolean take(Field field, Map<String, Object> rest, Message.Builder into) {
    String outer = field.json().getWithin();
    String key = outer.isEmpty() ? field.key() : outer;
    if (!rest.containsKey(key)) {
      return false;
    }
    Object value = rest.get(key);
    if (!outer.isEmpty()) {
      if (!(value instanceof Map<?, ?> inner)
          || inner.size() != 1
          || !inner.containsKey(field.key())) {
        return false;
      }
      value = inner.get(field.key());
    }
    boolean fits = readField(field, value, into);
    if (fits) {
      rest.remove(key);
    }
    return fits;
  }

  private static boolean readField(Field field, Object value, Message.Builder into) {
    if (field.json().getMarker() == Marker.MARKER_EMPTY_LIST) {
      boolean empty = value instanceof List<?> list && list.isEmpty();
      return empty && set(field, true, into);
    }
    if (field.text() != null && value instanceof String) {
      boolean fits = Json.isText(value);
      if (fits) {
        into.setField(field.text(), value);
      }
      return fits;
    }
    if (field.json().getPartType().isEmpty()) {
      return set(field, value, into);
    }
    List<Object> texts = texts(value, field.json().getPartType());
    return texts != null && set(field, texts, into);
  }

  /** The texts of a list whose parts are all of this type and hold a text and no more; or null. */
  private static List<Object> texts(Object value, String partType) {
    if (!(value instanceof List<?> parts)) {
      return null;
    }
    List<Object> texts = new ArrayList<>();
    for (Object part : parts) {
      if (!(part instanceof Map<?, ?> object)
          || object.size() != 2
          || !partType.equals(object.get("type"))) {
        return null;
      }
      texts.add(object.get("text"));
    }
    return texts;
  }

  /** Sets a field where the value fits. */
  private static boolean set(Field field, Object value, Message.Builder into) {
    List<Object> read = new ArrayList<>();
    if (field.of().isMapField()) {
      if (!(value instanceof Map<?, ?> object)) {
        return false;
      }
      for (Map.Entry<?, ?> entry : object.entrySet()) {
        if (!Json.isText(entry.getKey()) || !Json.isText(entry.getValue())) {
          return false;
        }
        Message.Builder one = into.newBuilderForField(field.of());
        FieldDescriptor key = one.getDescriptorForType().findFieldByNumber(1);
        FieldDescriptor text = one.getDescriptorForType().findFieldByNumber(2);
        read.add(one.setField(key, entry.getKey()).setField(text, entry.getValue()).build());
      }
    } else if (field.of().isRepeated()) {
      if (!(value instanceof List<?> values)) {
        return false;
      }
      for (Object element : values) {
        Object one = Codec.within(read.size(), () -> single(field, element, into));
        if (one == null) {
          return false;
        }
        read.add(one);
      }
    } else {
      Object one = single(field, value, into);
      if (one != null) {
        into.setField(field.of(), one);
      }
      return one != null;
    }
    into.setField(field.of(), read);
    return true;
  }

  /** Reads one value of a field; null where it does not fit. */
  private static Object single(Field field, Object value, Message.Builder into) {
    switch (field.of().getType()) {
      case MESSAGE -> {
        Message.Builder inner = into.newBuilderForField(field.of());
        return read(value, inner) ? inner.build() : null;
      }
      case BYTES -> {
        return bytes(field, value);
      }
      case STRING -> {
        return Json.isText(value) ? value : null;
      }
      case BOOL -> {
        return value instanceof Boolean ? value : null;
      }
      case ENUM -> {
        return value instanceof String text ? enumValue(field.of().getEnumType(), text) : null;
      }
      default -> {
        return number(field.of().getType(), value);
      }
    }
  }

  /** The value of a name, or of the number of one that this contract does not have. */
  private static EnumValueDescriptor enumValue(EnumDescriptor type, String text) {
    EnumValueDescriptor known = type.findValueByName(Plan.prefixOf(type) + text);
    if (known != null) {
      return known;
    }
    try {
      return type.findValueByNumberCreatingIfUnknown(Integer.parseInt(text));
    } catch (NumberFormatException otherwise) {
      return null;
    }
  }

  private static Object number(FieldDescriptor.Type type, Object value) {
    if (type == FieldDescriptor.Type.DOUBLE && value instanceof Double) {
      return value;
    }
    if (type == FieldDescriptor.Type.UINT64 && value instanceof BigInteger integer) {
      boolean fits = integer.signum() > 0 && integer.bitLength() <= Long.SIZE;
      return fits ? integer.longValue() : null;
    }
    if (!(value instanceof Long integer)) {
      return null;
    }
    return switch (type) {
      case DOUBLE -> isDouble(integer) ? (Object) (double) integer : null;
      case INT64 -> integer;
      case UINT64 -> integer >= 0 ? integer : null;
      case INT32 -> integer == integer.intValue() ? integer.intValue() : null;
      case UINT32 -> (integer & UNSIGNED_32) == integer ? integer.intValue() : null;
      default -> null;
    };
  }

  private static boolean isDouble(long integer) {
    // The largest one becomes 2^63, which is converted back to it.
    return integer != Long.MAX_VALUE && (long) (double) integer == integer;
  }

  private static ByteString bytes(Field field, Object value) {
    if (field.holdsJson()) {
      JsonValues takes = field.json().getTakes();
      boolean text = takes == JsonValues.JSON_VALUES_OBJECT_OR_STRING && value instanceof String;
      boolean any = takes == JsonValues.JSON_VALUES_UNSPECIFIED;
      return any || text || value instanceof Map ? stored(value) : null;
    }
    BytesForm form = field.json().getBytes();
    if (form == BytesForm.BYTES_FORM_INT32 || form == BytesForm.BYTES_FORM_FLOAT32) {
      return value instanceof List<?> numbers ? packed(numbers, form) : null;
    }
    if (!(value instanceof String text)) {
      return null;
    }
    try {
      return switch (form) {
        case BYTES_FORM_HEX -> decoded(text, HexFormat.of()::parseHex, HexFormat.of()::formatHex);
        case BYTES_FORM_BASE64 ->
            decoded(text, Base64.getDecoder()::decode, Base64.getEncoder()::encodeToString);
        default -> ByteString.copyFrom(Json.encode(text));
      };
    } catch (IllegalArgumentException wrong) { // not hexadecimal, not Base64
      return null;
    }
  }

  /** The bytes of a text; null where encoding them makes another text, as a decoder takes more. */
  private static ByteString decoded(
      String text, Function<String, byte[]> decode, Function<byte[], String> encode) {
    byte[] held = decode.apply(text);
    return encode.apply(held).equals(text) ? ByteString.copyFrom(held) : null;
  }

  /** Packs a list of numbers; null stands for a real that is not finite. */
  private static ByteString packed(List<?> numbers, BytesForm form) {
    ByteBuffer packed =
        ByteBuffer.allocate(Integer.BYTES * numbers.size()).order(ByteOrder.LITTLE_ENDIAN);
    for (Object number : numbers) {
      if (form == BytesForm.BYTES_FORM_INT32) {
        if (!(number instanceof Long id) || id < 0 || id > Integer.MAX_VALUE) {
          return null;
        }
        packed.putInt(id.intValue());
      } else if (number == null) {
        packed.putFloat(Float.NaN);
      } else if (number instanceof Long || number instanceof Double) {
        packed.putFloat(((Number) number).floatValue());
      } else {
        return null;
      }
    }
    return ByteString.copyFrom(packed.flip());
  }
}
