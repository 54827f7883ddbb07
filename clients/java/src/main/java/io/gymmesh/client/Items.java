package io.gymmesh.client;

import static io.gymmesh.client.Fields.copyOfObject;
import static io.gymmesh.client.Fields.each;
import static io.gymmesh.client.Fields.isText;
import static io.gymmesh.client.Fields.keep;
import static io.gymmesh.client.Fields.put;
import static io.gymmesh.client.Fields.putOverlay;
import static io.gymmesh.client.Fields.readField;
import static io.gymmesh.client.Fields.store;
import static io.gymmesh.client.Fields.takeTexts;
import static io.gymmesh.client.Fields.under;

import com.google.protobuf.ByteString;
import io.gymmesh.responses.v1.ContentPart;
import io.gymmesh.responses.v1.ContentParts;
import io.gymmesh.responses.v1.FunctionCall;
import io.gymmesh.responses.v1.FunctionCallOutput;
import io.gymmesh.responses.v1.InputImage;
import io.gymmesh.responses.v1.InputText;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.responses.v1.Message;
import io.gymmesh.responses.v1.OpaqueItem;
import io.gymmesh.responses.v1.OpaquePart;
import io.gymmesh.responses.v1.OutputText;
import io.gymmesh.responses.v1.Reasoning;
import io.gymmesh.responses.v1.ReasoningTexts;
import io.gymmesh.responses.v1.Refusal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Items, the elements of a conversation, and the content parts that they are made of. */
final class Items {
  private Items() {}

  static Item read(Object value) {
    if (!(value instanceof Map<?, ?> object)) {
      return opaque(value);
    }
    Map<String, Object> rest = copyOfObject(object, "an item");
    Object kind = rest.remove("type");
    boolean typeOmitted = !object.containsKey("type") && object.containsKey("role");
    Item.Builder item = Item.newBuilder();
    if (typeOmitted || "message".equals(kind)) {
      item.setMessage(readMessage(rest, typeOmitted));
    } else if ("function_call".equals(kind)) {
      item.setFunctionCall(readCall(rest));
    } else if ("function_call_output".equals(kind)) {
      item.setFunctionCallOutput(readOutput(rest));
    } else if ("reasoning".equals(kind)) {
      item.setReasoning(readReasoning(rest));
    } else {
      return opaque(value);
    }
    return item.build();
  }

  static Object write(Item item) {
    return switch (item.getKindCase()) {
      case MESSAGE -> writeMessage(item.getMessage());
      case FUNCTION_CALL -> writeCall(item.getFunctionCall());
      case FUNCTION_CALL_OUTPUT -> writeOutput(item.getFunctionCallOutput());
      case REASONING -> writeReasoning(item.getReasoning());
      case OPAQUE -> readField(item.getOpaque().getJson(), "json");
      case KIND_NOT_SET -> throw new CodecException(Codec.UNKNOWN_KIND);
    };
  }

  /** The plain text of a message or of a tool's answer, its text parts joined; else empty. */
  static String textOf(Item item) {
    String key = item.hasMessage() ? "content" : item.hasFunctionCallOutput() ? "output" : null;
    if (key == null || !(write(item) instanceof Map<?, ?> document)) {
      return "";
    }
    Object content = document.get(key);
    if (content instanceof String text) {
      return text;
    }
    StringBuilder text = new StringBuilder();
    if (content instanceof List<?> parts) {
      for (Object part : parts) {
        if (part instanceof Map<?, ?> known
            && ("input_text".equals(known.get("type")) || "output_text".equals(known.get("type")))
            && known.get("text") instanceof String piece) {
          text.append(piece);
        }
      }
    }
    return text.toString();
  }

  /** The `type` of what is kept whole; empty where it has none. */
  static String typeOf(Object value) {
    Object type = value instanceof Map<?, ?> object ? object.get("type") : null;
    return isText(type) ? (String) type : "";
  }

  private static Item opaque(Object value) {
    OpaqueItem.Builder opaque = OpaqueItem.newBuilder();
    return Item.newBuilder().setOpaque(opaque.setType(typeOf(value)).setJson(store(value))).build();
  }

  private static Message readMessage(Map<String, Object> rest, boolean typeOmitted) {
    Message.Builder message = Message.newBuilder().setTypeOmitted(typeOmitted);
    takeTexts(rest, message, "id", "role", "status");
    if (rest.get("content") instanceof List<?> parts) {
      message.setParts(under("content", () -> readParts(parts)));
      rest.remove("content");
    } else if (isText(rest.get("content"))) {
      message.setText((String) rest.remove("content"));
    }
    keep(rest, message);
    return message.build();
  }

  private static Object writeMessage(Message message) {
    Map<String, Object> out = typed(message.getTypeOmitted() ? null : "message");
    put(out, message, "id", "role", "status");
    if (message.hasText()) {
      out.put("content", message.getText());
    } else if (message.hasParts()) {
      out.put("content", under("content", () -> writeParts(message.getParts())));
    }
    return putOverlay(out, message.getOverlayJson());
  }

  private static FunctionCall readCall(Map<String, Object> rest) {
    FunctionCall.Builder call = FunctionCall.newBuilder();
    takeTexts(rest, call, "id", "call_id", "name", "status");
    if (rest.get("arguments") instanceof String arguments) {
      call.setArguments(ByteString.copyFrom(Json.encode(arguments)));
      rest.remove("arguments");
    }
    keep(rest, call);
    return call.build();
  }

  private static Object writeCall(FunctionCall call) {
    Map<String, Object> out = typed("function_call");
    put(out, call, "id", "call_id", "name", "status");
    if (call.hasArguments()) {
      out.put("arguments", under("arguments", () -> text(call.getArguments())));
    }
    return putOverlay(out, call.getOverlayJson());
  }

  private static FunctionCallOutput readOutput(Map<String, Object> rest) {
    FunctionCallOutput.Builder output = FunctionCallOutput.newBuilder();
    takeTexts(rest, output, "id", "call_id", "status");
    if (rest.get("output") instanceof List<?> parts) {
      output.setParts(under("output", () -> readParts(parts)));
      rest.remove("output");
    } else if (rest.get("output") instanceof String text) {
      output.setText(ByteString.copyFrom(Json.encode(text)));
      rest.remove("output");
    }
    keep(rest, output);
    return output.build();
  }

  private static Object writeOutput(FunctionCallOutput output) {
    Map<String, Object> out = typed("function_call_output");
    put(out, output, "id", "call_id", "status");
    if (output.hasText()) {
      out.put("output", under("output", () -> text(output.getText())));
    } else if (output.hasParts()) {
      out.put("output", under("output", () -> writeParts(output.getParts())));
    }
    return putOverlay(out, output.getOverlayJson());
  }

  private static Reasoning readReasoning(Map<String, Object> rest) {
    Reasoning.Builder reasoning = Reasoning.newBuilder();
    takeTexts(rest, reasoning, "id", "encrypted_content", "status");
    ReasoningTexts summary = texts(rest.get("summary"), "summary_text");
    if (summary != null) {
      reasoning.setSummary(summary);
      rest.remove("summary");
    }
    ReasoningTexts content = texts(rest.get("content"), "reasoning_text");
    if (content != null) {
      reasoning.setContent(content);
      rest.remove("content");
    }
    keep(rest, reasoning);
    return reasoning.build();
  }

  private static Object writeReasoning(Reasoning reasoning) {
    Map<String, Object> out = typed("reasoning");
    put(out, reasoning, "id", "encrypted_content", "status");
    if (reasoning.hasSummary()) {
      out.put("summary", writeTexts(reasoning.getSummary(), "summary_text"));
    }
    if (reasoning.hasContent()) {
      out.put("content", writeTexts(reasoning.getContent(), "reasoning_text"));
    }
    return putOverlay(out, reasoning.getOverlayJson());
  }

  /** A list whose parts are all of this type and hold a text and no more; null: another one. */
  private static ReasoningTexts texts(Object value, String type) {
    if (!(value instanceof List<?> parts)) {
      return null;
    }
    ReasoningTexts.Builder texts = ReasoningTexts.newBuilder();
    for (Object part : parts) {
      boolean plain =
          part instanceof Map<?, ?> object
              && object.size() == 2
              && type.equals(object.get("type"))
              && isText(object.get("text"));
      if (!plain) {
        return null;
      }
      texts.addTexts((String) ((Map<?, ?>) part).get("text"));
    }
    return texts.build();
  }

  private static List<Object> writeTexts(ReasoningTexts texts, String type) {
    List<Object> parts = new ArrayList<>();
    for (String text : texts.getTextsList()) {
      Map<String, Object> part = typed(type);
      part.put("text", text);
      parts.add(part);
    }
    return parts;
  }

  private static ContentParts readParts(List<?> values) {
    return ContentParts.newBuilder().addAllParts(each(values, Items::readPart)).build();
  }

  private static List<Object> writeParts(ContentParts parts) {
    return each(parts.getPartsList(), Items::writePart);
  }

  private static ContentPart readPart(Object value) {
    ContentPart.Builder part = ContentPart.newBuilder();
    String kind = typeOf(value);
    Map<String, Object> rest = value instanceof Map ? copyOfObject(value, "a part") : Map.of();
    switch (kind) {
      case "input_text" -> part.setInputText(filled(rest, InputText.newBuilder(), "text"));
      case "refusal" -> part.setRefusal(filled(rest, Refusal.newBuilder(), "refusal"));
      case "input_image" ->
          part.setInputImage(
              filled(rest, InputImage.newBuilder(), "image_url", "file_id", "detail"));
      case "output_text" -> part.setOutputText(readOutputText(rest));
      default -> part.setOpaque(OpaquePart.newBuilder().setType(kind).setJson(store(value)));
    }
    return part.build();
  }

  private static <B extends com.google.protobuf.Message.Builder> B filled(
      Map<String, Object> rest, B part, String... names) {
    rest.remove("type");
    takeTexts(rest, part, names);
    keep(rest, part);
    return part;
  }

  private static OutputText.Builder readOutputText(Map<String, Object> rest) {
    OutputText.Builder part = OutputText.newBuilder();
    if (List.of().equals(rest.get("annotations"))) {
      part.setAnnotationsEmpty(true);
      rest.remove("annotations");
    }
    if (List.of().equals(rest.get("logprobs"))) {
      part.setLogprobsEmpty(true);
      rest.remove("logprobs");
    }
    return filled(rest, part, "text");
  }

  private static Object writePart(ContentPart part) {
    return switch (part.getKindCase()) {
      case INPUT_TEXT -> {
        Map<String, Object> out = typed("input_text");
        put(out, part.getInputText(), "text");
        yield putOverlay(out, part.getInputText().getOverlayJson());
      }
      case OUTPUT_TEXT -> {
        OutputText text = part.getOutputText();
        Map<String, Object> out = typed("output_text");
        put(out, text, "text");
        if (text.getAnnotationsEmpty()) {
          out.put("annotations", new ArrayList<>());
        }
        if (text.getLogprobsEmpty()) {
          out.put("logprobs", new ArrayList<>());
        }
        yield putOverlay(out, text.getOverlayJson());
      }
      case REFUSAL -> {
        Map<String, Object> out = typed("refusal");
        put(out, part.getRefusal(), "refusal");
        yield putOverlay(out, part.getRefusal().getOverlayJson());
      }
      case INPUT_IMAGE -> {
        Map<String, Object> out = typed("input_image");
        put(out, part.getInputImage(), "image_url", "file_id", "detail");
        yield putOverlay(out, part.getInputImage().getOverlayJson());
      }
      case OPAQUE -> readField(part.getOpaque().getJson(), "json");
      case KIND_NOT_SET -> throw new CodecException(Codec.UNKNOWN_KIND);
    };
  }

  private static String text(ByteString raw) {
    return Json.decode(raw.toByteArray());
  }

  private static Map<String, Object> typed(String type) {
    Map<String, Object> out = new LinkedHashMap<>();
    if (type != null) {
      out.put("type", type);
    }
    return out;
  }
}
