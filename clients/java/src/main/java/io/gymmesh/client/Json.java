package io.gymmesh.client;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.io.NumberOutput;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.google.protobuf.ByteString;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * JSON without loss.
 *
 * <p>A value is null, {@link Boolean}, {@link String}, {@link Long} (an integer of 64 bits), {@link
 * BigInteger} (a larger one), {@link Double} (a literal with fraction or exponent), {@code
 * List<Object>} or {@code Map<String, Object>}; two values are equal in the sense of the contract
 * exactly when {@code equals} says so. Unpaired surrogates are kept; of equal keys the last one
 * counts.
 */
public final class Json {
  /** Documents may nest this many levels of objects and arrays. */
  public static final int MAX_DEPTH = 240;

  // The conversion of longer integers takes quadratic time.
  private static final int MAX_DIGITS = 4300;

  // In a pattern a pair of surrogates is one character, so these are unpaired.
  private static final Pattern UNPAIRED = Pattern.compile("\\p{Cs}");

  static final Comparator<String> BY_CODE_POINTS =
      (a, b) -> Arrays.compare(a.codePoints().toArray(), b.codePoints().toArray());

  private static final JsonFactory LIBRARY =
      JsonFactory.builder()
          // Keys are of documents that anybody may send: keeping them would fill the memory.
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
          .disable(JsonWriteFeature.WRITE_HEX_UPPER_CASE)
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(MAX_DEPTH)
                  .maxNumberLength(MAX_DIGITS)
                  .maxStringLength(Integer.MAX_VALUE)
                  .maxNameLength(Integer.MAX_VALUE)
                  .build())
          .build();

  private Json() {}

  /**
   * Parses a text.
   *
   * @throws CodecException not JSON, a number that cannot be held, or nested too deeply
   */
  public static Object parse(String text) {
    try (JsonParser parser = LIBRARY.createParser(text)) {
      parser.nextToken();
      Object value = value(parser);
      if (parser.nextToken() != null) {
        throw new CodecException("not valid JSON: more text after the value");
      }
      return value;
    } catch (JsonProcessingException problem) {
      throw new CodecException("not valid JSON: " + problem.getOriginalMessage());
    } catch (IOException impossible) { // a text has no such errors
      throw new UncheckedIOException(impossible);
    }
  }

  /**
   * Parses UTF-8, in which an unpaired surrogate may have its three-byte form.
   *
   * @throws CodecException as for a text, or not UTF-8
   */
  public static Object parse(byte[] utf8) {
    return parse(decode(utf8));
  }

  /** Parses bytes that must hold an object. */
  @SuppressWarnings("unchecked")
  static Map<String, Object> parseObject(ByteString utf8) {
    Object value = parse(utf8.toByteArray());
    if (value instanceof Map) {
      return (Map<String, Object>) value;
    }
    throw new CodecException("an object is required, not " + nameOf(value));
  }

  /** The value that begins with the parser's token. */
  private static Object value(JsonParser parser) throws IOException {
    JsonToken token = parser.currentToken();
    if (token == null) {
      throw new CodecException("not valid JSON: a value was expected");
    }
    switch (token) {
      case START_OBJECT -> {
        Map<String, Object> object = new LinkedHashMap<>();
        while (parser.nextToken() != JsonToken.END_OBJECT) {
          String key = parser.currentName();
          parser.nextToken();
          object.put(key, value(parser));
        }
        return object;
      }
      case START_ARRAY -> {
        List<Object> array = new ArrayList<>();
        while (parser.nextToken() != JsonToken.END_ARRAY) {
          array.add(value(parser));
        }
        return array;
      }
      case VALUE_NUMBER_INT -> {
        return parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER
            ? parser.getBigIntegerValue()
            : (Object) parser.getLongValue();
      }
      case VALUE_NUMBER_FLOAT -> {
        double real = parser.getDoubleValue();
        if (Double.isInfinite(real)) {
          throw new CodecException("a number is beyond the range of a double");
        }
        return real;
      }
      case VALUE_STRING -> {
        return parser.getText();
      }
      case VALUE_NULL -> {
        return null;
      }
      default -> {
        return parser.getBooleanValue();
      }
    }
  }

  /**
   * Writes a value as compact JSON, in which an unpaired surrogate is escaped.
   *
   * @throws CodecException NaN, an infinity, or what is not a JSON value
   */
  public static String write(Object value) {
    StringWriter out = new StringWriter();
    try (JsonGenerator generator = LIBRARY.createGenerator(out)) {
      write(generator, value);
    } catch (JsonProcessingException problem) {
      throw new CodecException(problem.getOriginalMessage());
    } catch (IOException impossible) { // a text has no such errors
      throw new UncheckedIOException(impossible);
    }
    return UNPAIRED
        .matcher(out.toString())
        .replaceAll(one -> String.format("\\\\u%04x", (int) one.group().charAt(0)));
  }

  /** {@link #write} as UTF-8. */
  public static byte[] writeBytes(Object value) {
    return write(value).getBytes(StandardCharsets.UTF_8);
  }

  private static void write(JsonGenerator out, Object value) throws IOException {
    if (value == null) {
      out.writeNull();
    } else if (value instanceof Boolean said) {
      out.writeBoolean(said);
    } else if (value instanceof String text) {
      out.writeString(text);
    } else if (value instanceof Long integer) {
      out.writeNumber(integer);
    } else if (value instanceof BigInteger integer) {
      out.writeNumber(integer);
    } else if (value instanceof Double real && Double.isFinite(real)) {
      out.writeNumber(literal(real));
    } else if (value instanceof Map<?, ?> object) {
      out.writeStartObject();
      for (Map.Entry<?, ?> entry : object.entrySet()) {
        out.writeFieldName((String) entry.getKey());
        write(out, entry.getValue());
      }
      out.writeEndObject();
    } else if (value instanceof List<?> array) {
      out.writeStartArray();
      for (Object element : array) {
        write(out, element);
      }
      out.writeEndArray();
    } else {
      throw new CodecException(value + " is not a JSON value");
    }
  }

  /** A real as clients in other languages write it: an id is made of what is written. */
  private static String literal(double real) {
    double size = Math.abs(real);
    // The library's digits are the fewest that are read as this number, but that it has at least
    // two.
    BigDecimal decimal = new BigDecimal(NumberOutput.toString(size, true)).stripTrailingZeros();
    BigDecimal one = decimal.round(new MathContext(1)).stripTrailingZeros();
    decimal = one.doubleValue() == size ? one : decimal;
    String sign = Math.copySign(1, real) < 0 ? "-" : "";
    if (size == 0 || size >= 1e-5 && size < 1e16) {
      return sign + decimal.setScale(Math.max(decimal.scale(), 1)).toPlainString();
    }
    int exponent = decimal.precision() - decimal.scale() - 1;
    String digits = decimal.movePointLeft(exponent).toPlainString();
    return sign + digits + (exponent < 0 ? "e" : "e+") + exponent;
  }

  /**
   * Whether a value is a text without unpaired surrogates, so that a protobuf string can hold it.
   */
  static boolean isText(Object value) {
    return value instanceof String text && !UNPAIRED.matcher(text).find();
  }

  /** UTF-8, in which an unpaired surrogate takes its three-byte form. */
  static byte[] encode(String text) {
    if (isText(text)) {
      return text.getBytes(StandardCharsets.UTF_8);
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    text.codePoints()
        .forEach(
            code -> {
              if (code >= 0xD800 && code <= 0xDFFF) {
                out.write(0xE0 | code >> 12);
                out.write(0x80 | code >> 6 & 0x3F);
                out.write(0x80 | code & 0x3F);
              } else {
                out.writeBytes(Character.toString(code).getBytes(StandardCharsets.UTF_8));
              }
            });
    return out.toByteArray();
  }

  /** The inverse of {@link #encode}. */
  static String decode(byte[] bytes) {
    StringBuilder text = new StringBuilder(bytes.length);
    int from = 0;
    for (int i = 0; i + 2 < bytes.length; i++) {
      // Only a surrogate's form begins with ED and a second byte from A0 on.
      if (bytes[i] == (byte) 0xED
          && (bytes[i + 1] & 0xE0) == 0xA0
          && (bytes[i + 2] & 0xC0) == 0x80) {
        text.append(strict(bytes, from, i));
        text.append((char) (0xD000 | (bytes[i + 1] & 0x3F) << 6 | bytes[i + 2] & 0x3F));
        from = i + 3;
        i = from - 1;
      }
    }
    return text.append(strict(bytes, from, bytes.length)).toString();
  }

  private static CharBuffer strict(byte[] bytes, int from, int to) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes, from, to - from));
    } catch (CharacterCodingException e) {
      throw new CodecException("not UTF-8");
    }
  }

  /** What a value is called in an error. */
  static String nameOf(Object value) {
    if (value == null) {
      return "null";
    }
    if (value instanceof Map) {
      return "an object";
    }
    if (value instanceof List) {
      return "an array";
    }
    if (value instanceof String) {
      return "a string";
    }
    return value instanceof Boolean ? "a boolean" : "a number";
  }

  /**
   * The value with its objects' keys in the order of their code points, so that equal rows give
   * equal bytes.
   */
  static Object sorted(Object value) {
    if (value instanceof Map<?, ?> object) {
      Map<String, Object> sorted = new TreeMap<>(BY_CODE_POINTS);
      object.forEach((key, member) -> sorted.put((String) key, sorted(member)));
      return sorted;
    }
    return value instanceof List<?> array
        ? new ArrayList<>(array.stream().map(Json::sorted).toList())
        : value;
  }
}
