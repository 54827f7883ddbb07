package io.gymmesh.client;

import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.OneofDescriptor;
import io.gymmesh.json.v1.FieldJson;
import io.gymmesh.json.v1.JsonProto;
import io.gymmesh.json.v1.Marker;
import io.gymmesh.json.v1.Shape;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What the descriptor of a message says about its JSON.
 *
 * @param shape which value it is
 * @param fields in the order of their numbers, but for those that are read with another one
 * @param overlay the field `overlay_json`, or null
 * @param typeOmitted what marks that the document had no `type`, or null
 */
record Plan(Shape shape, List<Field> fields, FieldDescriptor overlay, FieldDescriptor typeOmitted) {
  static final String OVERLAY = "overlay_json";
  private static final Map<Descriptor, Plan> KNOWN = new ConcurrentHashMap<>();
  private static final String JSON = "_json";

  /**
   * A field.
   *
   * @param of its descriptor
   * @param json its option
   * @param key its key
   * @param holdsJson whether it is called `x_json`
   * @param omitted what marks that the document had no list here, or null
   * @param text the field that takes the value when it is a string and no list, or null
   */
  record Field(
      FieldDescriptor of,
      FieldJson json,
      String key,
      boolean holdsJson,
      FieldDescriptor omitted,
      FieldDescriptor text) {

    /** Whether it is a message of this shape. */
    boolean is(Shape shape) {
      return isMessage(of) && !of.isRepeated() && Plan.of(of.getMessageType()).shape == shape;
    }
  }

  static Plan of(Descriptor message) {
    Plan known = KNOWN.get(message);
    if (known == null) {
      known = read(message);
      KNOWN.put(message, known);
    }
    return known;
  }

  private static Plan read(Descriptor message) {
    FieldDescriptor overlay = null;
    FieldDescriptor typeOmitted = null;
    List<Field> fields = new ArrayList<>();
    for (FieldDescriptor field : message.getFields()) {
      FieldJson json = optionOf(field);
      if (field.getName().equals(OVERLAY)) {
        overlay = field;
      } else if (json.getMarker() == Marker.MARKER_TYPE_OMITTED) {
        typeOmitted = field;
      } else if (json.getMarker() != Marker.MARKER_LIST_OMITTED && json.getFormOf().isEmpty()) {
        fields.add(field(field, json));
      }
    }
    fields.sort(Comparator.comparingInt(field -> field.of.getNumber()));
    Shape shape = message.getOptions().getExtension(JsonProto.message).getShape();
    return new Plan(shape, List.copyOf(fields), overlay, typeOmitted);
  }

  private static FieldJson optionOf(FieldDescriptor field) {
    return field.getOptions().getExtension(JsonProto.field);
  }

  private static Field field(FieldDescriptor field, FieldJson json) {
    String name = field.getName();
    String key = name;
    if (!json.getKey().isEmpty()) {
      key = json.getKey();
    } else if (field.getRealContainingOneof() != null) {
      key = field.getRealContainingOneof().getName();
    } else if (json.getMarker() == Marker.MARKER_EMPTY_LIST) {
      key = without(name, "_empty");
    } else if (name.endsWith(JSON)) {
      key = without(name, JSON);
    }
    FieldDescriptor omitted = null;
    FieldDescriptor text = null;
    for (FieldDescriptor other : field.getContainingType().getFields()) {
      FieldJson said = optionOf(other);
      if (said.getMarker() == Marker.MARKER_LIST_OMITTED
          && without(other.getName(), "_omitted").equals(name)) {
        omitted = other;
      } else if (said.getFormOf().equals(name)) {
        text = other;
      }
    }
    return new Field(field, json, key, name.endsWith(JSON), omitted, text);
  }

  private static String without(String text, String end) {
    return text.substring(0, text.length() - end.length());
  }

  static boolean isMessage(FieldDescriptor field) {
    return field.getJavaType() == FieldDescriptor.JavaType.MESSAGE;
  }

  /** The one oneof of a union or a number. */
  static OneofDescriptor oneofOf(Descriptor message) {
    return message.getOneofs().get(0);
  }

  /** What the names of an enum's values begin with. */
  static String prefixOf(EnumDescriptor type) {
    return without(type.findValueByNumber(0).getName(), "UNSPECIFIED");
  }
}
