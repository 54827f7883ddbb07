package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.gymmesh.model.v1.TokenCapture;
import io.gymmesh.model.v1.WeightsSpan;
import io.gymmesh.responses.v1.Item;
import io.gymmesh.responses.v1.Response;
import io.gymmesh.rollout.v1.Media;
import io.gymmesh.rollout.v1.ProgramEnded;
import io.gymmesh.row.v1.ModelCall;
import io.gymmesh.row.v1.Row;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** JSON is kept to the last digit and code unit. */
class JsonTest {
  @ParameterizedTest
  @ValueSource(
      strings = {
        "null",
        "[true,false,null]",
        "{\"a\":{\"b\":[]},\"\":{}}",
        "[1,1.0,-0.0,0,-9223372036854775808,18446744073709551616]",
        "\"\\u0000\\b\\f\\n\\r\\t\\\\\\\"/\\ud83d\\ude00\"",
        "[\"\\ud800\",\"\\udc00\\ud800\"]",
        "{\"\\ud800\":1}",
        "[5e-324,1e308,123456789.25]"
      })
  void whatIsWrittenIsWhatWasRead(String text) {
    Object value = Json.parse(text);
    assertEquals(value, Json.parse(Json.write(value)));
    assertEquals(value, Json.parse(Json.writeBytes(value)));
  }

  @Test
  void numbersKeepTheirKind() {
    assertEquals(1L, Json.parse("1"));
    assertEquals(1.0, Json.parse("1.0"));
    assertEquals(1.0, Json.parse("1E0"));
    assertEquals(BigInteger.TWO.pow(64), Json.parse("18446744073709551616"));
    assertNotEquals(Json.parse("0.0"), Json.parse("-0.0"));
    assertEquals("1.0", Json.write(1.0));
  }

  @Test
  void numbersAreWrittenAlikeInAllLocales() {
    Locale usual = Locale.getDefault();
    Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
    try {
      assertEquals("[1e+300,2.5e-7]", Json.write(Json.parse("[1e300,2.5e-7]")));
    } finally {
      Locale.setDefault(usual);
    }
  }

  @Test
  void theLastOfEqualKeysCounts() {
    assertEquals(Json.parse("{\"a\":2}"), Json.parse("{\"a\":1,\"a\":2}"));
  }

  @Test
  void anUnpairedSurrogateIsReadInBothForms() {
    byte[] threeBytes = {'"', (byte) 0xED, (byte) 0xA0, (byte) 0x80, '"'};
    assertEquals("\ud800", Json.parse(threeBytes));
    assertEquals("\ud800", Json.parse("\"\\ud800\""));
    assertEquals("\"\\ud800\"", Json.write("\ud800"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "nul",
        "NaN",
        "Infinity",
        "-",
        "01",
        "1.",
        ".5",
        "1e",
        "+1",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "[1 2]",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "\"open",
        "[",
        "{\"a\"",
        "1 1",
        "1e999"
      })
  void whatIsNotJsonIsRefused(String text) {
    assertThrows(CodecException.class, () -> Json.parse(text));
  }

  @Test
  void bytesThatAreNotUtf8AreRefused() {
    assertThrows(CodecException.class, () -> Json.parse(new byte[] {'"', (byte) 0xC0, '"'}));
  }

  @Test
  void nestingIsBounded() {
    assertTrue(Json.parse("[".repeat(240) + "]".repeat(240)) instanceof List);
    assertThrows(CodecException.class, () -> Json.parse("[".repeat(241) + "]".repeat(241)));
    assertThrows(CodecException.class, () -> Json.parse("[".repeat(1_000_000)));
  }

  @Test
  void whatIsNoNumberIsNotWritten() {
    assertThrows(CodecException.class, () -> Json.write(List.of(Double.NaN)));
  }

  @Test
  void argumentsStayWhatTheModelWrote() {
    String text =
        "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"n\",\"arguments\":\"\\ud800{\"}";
    Item item = Codec.read(Json.parse(text), Item.newBuilder()).build();
    ByteString arguments = item.getFunctionCall().getArguments();
    assertEquals((byte) 0xED, arguments.byteAt(0));
    assertEquals(Json.parse(text), Codec.write(item));
  }

  @Test
  void anErrorNamesThePlace() {
    Response response = Response.newBuilder().addOutput(Item.newBuilder()).build();
    CodecException error = assertThrows(CodecException.class, () -> Codec.write(response));
    assertEquals(List.of("output", 0), error.path());
    assertTrue(error.getMessage().startsWith("output[0]: "));
  }

  @Test
  void anOverlayWinsOverATypedField() {
    Response response =
        Response.newBuilder()
            .setId("typed")
            .setOverlayJson(ByteString.copyFrom("{\"id\":null}", StandardCharsets.UTF_8))
            .build();
    assertEquals(Json.parse("{\"id\":null,\"output\":[]}"), Codec.write(response));
  }

  @Test
  void bytesOfARowHaveTheirForms() {
    TokenCapture tokens =
        TokenCapture.newBuilder()
            .setOutputTokenIds(bytes(1, 1, 0, 0))
            .setLogprobs(bytes(0, 0, 0, 0xBF, 0, 0, 0xC0, 0x7F))
            .setTokenizerDigest(bytes(0xAB))
            .addWeights(WeightsSpan.newBuilder().setVersion(-1L))
            .build();
    Row row =
        Row.newBuilder()
            .putTags("b", "2")
            .putTags("a", "1")
            .addMedia(Media.newBuilder().setData(bytes(0xFB, 0xFF)))
            .setProgram(ProgramEnded.newBuilder().setOutputTail(bytes(0xA9, 'c', 0xC3)))
            .addCalls(ModelCall.newBuilder().setTokens(tokens))
            .build();
    String text = Json.write(Codec.write(row));
    for (String part :
        List.of(
            "\"tags\":{\"a\":\"1\",\"b\":\"2\"}",
            "\"data\":\"+/8=\"",
            "\"output_tail\":\"\ufffdc\ufffd\"",
            "\"output_token_ids\":[257],\"logprobs\":[-0.5,null]",
            "\"version\":18446744073709551615",
            "\"tokenizer_digest\":\"ab\"",
            "\"reward\":null")) {
      assertTrue(text.contains(part), part + " is not in " + text);
    }
    Row again = Codec.read(Json.parse(text), Row.newBuilder()).build();
    assertEquals(tokens, again.getCalls(0).getTokens());
    Row.Builder broken = row.toBuilder();
    broken.getCallsBuilder(0).getTokensBuilder().setOutputTokenIds(bytes(1, 2, 3));
    CodecException error = assertThrows(CodecException.class, () -> Codec.write(broken.build()));
    assertEquals(List.of("calls", 0, "tokens", "output_token_ids"), error.path());
  }

  @Test
  void negativeTokenIdsAreNotWritten() {
    TokenCapture tokens =
        TokenCapture.newBuilder()
            .setOutputTokenIds(bytes(1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF))
            .build();
    CodecException error = assertThrows(CodecException.class, () -> Codec.write(tokens));
    assertEquals("output_token_ids[1]: -1 is negative", error.getMessage());
  }

  @Test
  void bytesFitOnlyAsTheyAreWritten() {
    assertEquals(bytes(0xAB), tokens("{\"tokenizer_digest\":\"ab\"}").getTokenizerDigest());
    assertTrue(tokens("{\"tokenizer_digest\":\"AB\"}").getTokenizerDigest().isEmpty());
    assertTrue(tokens("{\"prompt_token_ids\":[-1]}").getPromptTokenIds().isEmpty());
    assertEquals(8, tokens("{\"logprobs\":[-1,-2.5]}").getLogprobs().size());
    for (String wrong : List.of("+/\\n8=", "+/8", "+/9=")) {
      Media.Builder media = Media.newBuilder();
      assertTrue(
          Codec.read(Json.parse("{\"data\":\"" + wrong + "\"}"), media).getData().isEmpty(), wrong);
    }
  }

  private static TokenCapture tokens(String text) {
    return Codec.read(Json.parse(text), TokenCapture.newBuilder()).build();
  }

  @Test
  void aDoubleTakesAnIntegerThatItHolds() {
    assertTrue(
        Codec.read(Json.parse("{\"reward\":9223372036854774784}"), Row.newBuilder()).hasReward());
    assertFalse(
        Codec.read(Json.parse("{\"reward\":9223372036854775807}"), Row.newBuilder()).hasReward());
  }

  private static ByteString bytes(int... values) {
    byte[] bytes = new byte[values.length];
    for (int i = 0; i < values.length; i++) {
      bytes[i] = (byte) values[i];
    }
    return ByteString.copyFrom(bytes);
  }
}
