package io.gymmesh.client;

import static io.gymmesh.client.Fields.copyOfObject;
import static io.gymmesh.client.Fields.each;
import static io.gymmesh.client.Fields.isText;
import static io.gymmesh.client.Fields.keep;
import static io.gymmesh.client.Fields.put;
import static io.gymmesh.client.Fields.putOverlay;
import static io.gymmesh.client.Fields.readField;
import static io.gymmesh.client.Fields.store;
import static io.gymmesh.client.Fields.take;
import static io.gymmesh.client.Fields.takeJson;
import static io.gymmesh.client.Fields.takeTexts;
import static io.gymmesh.client.Fields.under;

import com.google.protobuf.ByteString;
import io.gymmesh.responses.v1.FunctionTool;
import io.gymmesh.responses.v1.IncompleteDetails;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.responses.v1.Number;
import io.gymmesh.responses.v1.OpaqueTool;
import io.gymmesh.responses.v1.Response;
import io.gymmesh.responses.v1.ResponseError;
import io.gymmesh.responses.v1.ResponseParams;
import io.gymmesh.responses.v1.Tool;
import io.gymmesh.responses.v1.Usage;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * OpenAI Responses JSON to gymmesh messages and back, without loss. Pure.
 *
 * <p>Readers take a value of {@link Json#parse}, writers return one for {@link Json#write}; what
 * cannot be converted is a {@link CodecException}.
 */
public final class Codec {
  static final String UNKNOWN_KIND = "holds a kind that this version of the contract does not know";
  private static final String[] COUNTS = {"input_tokens", "output_tokens", "total_tokens"};

  private Codec() {}

  /** Reads one item; what the contract has no kind for becomes an OpaqueItem. */
  public static Item readItem(Object value) {
    return Items.read(value);
  }

  /** Writes one item. */
  public static Object writeItem(Item item) {
    return Items.write(item);
  }

  /** Writes items as an array. */
  public static List<Object> writeItems(Iterable<Item> items) {
    return each(items, Items::write);
  }

  /** Reads one tool; any but a function becomes an OpaqueTool. */
  public static Tool readTool(Object value) {
    if (!(value instanceof Map) || !"function".equals(((Map<?, ?>) value).get("type"))) {
      OpaqueTool.Builder opaque = OpaqueTool.newBuilder();
      return Tool.newBuilder()
          .setOpaque(opaque.setType(Items.typeOf(value)).setJson(store(value)))
          .build();
    }
    Map<String, Object> rest = copyOfObject(value, "a tool");
    rest.remove("type");
    FunctionTool.Builder function = FunctionTool.newBuilder();
    takeTexts(rest, function, "name", "description");
    take(rest, function, "strict", Boolean.class);
    takeJson(rest, function, "parameters", false);
    keep(rest, function);
    return Tool.newBuilder().setFunction(function).build();
  }

  /** Writes one tool. */
  public static Object writeTool(Tool tool) {
    if (tool.hasOpaque()) {
      return readField(tool.getOpaque().getJson(), "json");
    }
    if (!tool.hasFunction()) {
      throw new CodecException(UNKNOWN_KIND);
    }
    FunctionTool function = tool.getFunction();
    Map<String, Object> out = new LinkedHashMap<>();
    out.put("type", "function");
    put(out, function, "name", "description", "strict");
    if (function.hasParametersJson()) {
      out.put("parameters", readField(function.getParametersJson(), "parameters"));
    }
    return putOverlay(out, function.getOverlayJson());
  }

  /** Reads the token counts of a response. */
  public static Usage readUsage(Object document) {
    Map<String, Object> rest = copyOfObject(document, "usage");
    Usage.Builder usage = Usage.newBuilder();
    for (String name : COUNTS) {
      take(rest, usage, name, Long.class);
    }
    Long cached = soleCount(rest, "input_tokens_details", "cached_tokens");
    if (cached != null) {
      usage.setCachedTokens(cached);
    }
    Long reasoning = soleCount(rest, "output_tokens_details", "reasoning_tokens");
    if (reasoning != null) {
      usage.setReasoningTokens(reasoning);
    }
    keep(rest, usage);
    return usage.build();
  }

  /** Writes token counts. */
  public static Map<String, Object> writeUsage(Usage usage) {
    Map<String, Object> out = new LinkedHashMap<>();
    put(out, usage, COUNTS);
    if (usage.hasCachedTokens()) {
      out.put("input_tokens_details", object("cached_tokens", usage.getCachedTokens()));
    }
    if (usage.hasReasoningTokens()) {
      out.put("output_tokens_details", object("reasoning_tokens", usage.getReasoningTokens()));
    }
    return putOverlay(out, usage.getOverlayJson());
  }

  /** Reads the body of a request for a response. */
  public static ResponseParams readParams(Object document) {
    Map<String, Object> rest = copyOfObject(document, "parameters");
    ResponseParams.Builder params = ResponseParams.newBuilder();
    takeTexts(rest, params, "model", "instructions", "previous_response_id");
    take(rest, params, "parallel_tool_calls", Boolean.class);
    if (rest.get("input") instanceof List<?> items) {
      params.addAllInput(under("input", () -> each(items, Items::read)));
      rest.remove("input");
    } else if (isText(rest.get("input"))) {
      params.setInputText((String) rest.remove("input"));
    } else {
      params.setInputOmitted(true);
    }
    if (rest.get("tools") instanceof List<?> tools) {
      params.addAllTools(under("tools", () -> each(tools, Codec::readTool)));
      rest.remove("tools");
    } else {
      params.setToolsOmitted(true);
    }
    Number temperature = takeNumber(rest, "temperature");
    if (temperature != null) {
      params.setTemperature(temperature);
    }
    Number topP = takeNumber(rest, "top_p");
    if (topP != null) {
      params.setTopP(topP);
    }
    take(rest, params, "max_output_tokens", Long.class);
    takeJson(rest, params, "tool_choice", true);
    takeJson(rest, params, "text", false);
    takeJson(rest, params, "reasoning", false);
    takeJson(rest, params, "metadata", false);
    keep(rest, params);
    return params.build();
  }

  /** Writes the parameters of a request. */
  public static Map<String, Object> writeParams(ResponseParams params) {
    Map<String, Object> out = new LinkedHashMap<>();
    put(out, params, "model", "instructions", "parallel_tool_calls", "max_output_tokens");
    put(out, params, "previous_response_id");
    if (params.hasInputText()) {
      if (params.getInputCount() > 0) {
        throw new CodecException("given both as text and as a list of items").within("input");
      }
      out.put("input", params.getInputText());
    } else if (params.getInputCount() > 0 || !params.getInputOmitted()) {
      out.put("input", under("input", () -> writeItems(params.getInputList())));
    }
    if (params.getToolsCount() > 0 || !params.getToolsOmitted()) {
      out.put("tools", under("tools", () -> each(params.getToolsList(), Codec::writeTool)));
    }
    putNumber(out, "temperature", params.getTemperature());
    putNumber(out, "top_p", params.getTopP());
    putJson(out, "tool_choice", params.hasToolChoiceJson(), params.getToolChoiceJson());
    putJson(out, "text", params.hasTextJson(), params.getTextJson());
    putJson(out, "reasoning", params.hasReasoningJson(), params.getReasoningJson());
    putJson(out, "metadata", params.hasMetadataJson(), params.getMetadataJson());
    return putOverlay(out, params.getOverlayJson());
  }

  /** Reads a response. */
  public static Response readResponse(Object document) {
    Map<String, Object> rest = copyOfObject(document, "a response");
    Response.Builder response = Response.newBuilder();
    takeTexts(rest, response, "id", "model", "status");
    if (rest.get("output") instanceof List<?> items) {
      response.addAllOutput(under("output", () -> each(items, Items::read)));
      rest.remove("output");
    } else {
      response.setOutputOmitted(true);
    }
    if (rest.get("usage") instanceof Map) {
      response.setUsage(under("usage", () -> readUsage(rest.remove("usage"))));
    }
    if (rest.get("incomplete_details") instanceof Map) {
      Map<String, Object> inner = copyOfObject(rest.remove("incomplete_details"), "details");
      IncompleteDetails.Builder details = IncompleteDetails.newBuilder();
      takeTexts(inner, details, "reason");
      keep(inner, details);
      response.setIncompleteDetails(details);
    }
    if (rest.get("error") instanceof Map) {
      Map<String, Object> inner = copyOfObject(rest.remove("error"), "error");
      ResponseError.Builder error = ResponseError.newBuilder();
      takeTexts(inner, error, "code", "message");
      keep(inner, error);
      response.setError(error);
    }
    keep(rest, response);
    return response.build();
  }

  /** Writes a response. */
  public static Map<String, Object> writeResponse(Response response) {
    Map<String, Object> out = new LinkedHashMap<>();
    put(out, response, "id", "model", "status");
    if (response.getOutputCount() > 0 || !response.getOutputOmitted()) {
      out.put("output", under("output", () -> writeItems(response.getOutputList())));
    }
    if (response.hasUsage()) {
      out.put("usage", under("usage", () -> writeUsage(response.getUsage())));
    }
    putEnds(out, response);
    return putOverlay(out, response.getOverlayJson());
  }

  /** A response without its `output` and `usage`, but for what of them stands in the overlay. */
  static Map<String, Object> writeHead(Response response) {
    Map<String, Object> out = new LinkedHashMap<>();
    put(out, response, "id", "model", "status");
    putEnds(out, response);
    return putOverlay(out, response.getOverlayJson());
  }

  private static void putEnds(Map<String, Object> out, Response response) {
    if (response.hasIncompleteDetails()) {
      IncompleteDetails details = response.getIncompleteDetails();
      Map<String, Object> inner = new LinkedHashMap<>();
      put(inner, details, "reason");
      out.put(
          "incomplete_details",
          under("incomplete_details", () -> putOverlay(inner, details.getOverlayJson())));
    }
    if (response.hasError()) {
      ResponseError error = response.getError();
      Map<String, Object> inner = new LinkedHashMap<>();
      put(inner, error, "code", "message");
      out.put("error", under("error", () -> putOverlay(inner, error.getOverlayJson())));
    }
  }

  /** Takes the count out of an object that has it and no other key; null: it is another object. */
  private static Long soleCount(Map<String, Object> rest, String key, String count) {
    if (rest.get(key) instanceof Map<?, ?> details
        && details.size() == 1
        && details.get(count) instanceof Long value) {
      rest.remove(key);
      return value;
    }
    return null;
  }

  private static Number takeNumber(Map<String, Object> rest, String key) {
    Object value = rest.get(key);
    if (value instanceof Long integer) {
      rest.remove(key);
      return Number.newBuilder().setInteger(integer).build();
    }
    if (value instanceof Double real) {
      rest.remove(key);
      return Number.newBuilder().setReal(real).build();
    }
    return null;
  }

  private static void putNumber(Map<String, Object> out, String key, Number number) {
    switch (number.getValueCase()) {
      case INTEGER -> out.put(key, number.getInteger());
      case REAL -> {
        if (!Double.isFinite(number.getReal())) {
          throw new CodecException(number.getReal() + " is not a JSON number").within(key);
        }
        out.put(key, number.getReal());
      }
      case VALUE_NOT_SET -> {}
    }
  }

  private static void putJson(
      Map<String, Object> out, String key, boolean present, ByteString raw) {
    if (present) {
      out.put(key, readField(raw, key));
    }
  }

  private static Map<String, Object> object(String key, Object value) {
    Map<String, Object> object = new LinkedHashMap<>();
    object.put(key, value);
    return object;
  }
}
