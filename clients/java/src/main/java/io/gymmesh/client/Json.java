package io.gymmesh.client;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

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

  // A document that is read may gain a few levels when its parts are put together again.
  private static final int WRITE_DEPTH = MAX_DEPTH + 24;
  private static final int MAX_DIGITS = 4300;

  private Json() {}

  /**
   * Parses a text.
   *
   * @throws CodecException not JSON, a number that cannot be held, or nested too deeply
   */
  public static Object parse(String text) {
    return new Reader(text).document();
  }

  /**
   * Parses UTF-8, in which an unpaired surrogate may have its three-byte form.
   *
   * @throws CodecException as for a text, or not UTF-8
   */
  public static Object parse(byte[] utf8) {
    return parse(decode(utf8));
  }

  /**
   * Writes a value as compact JSON, in which an unpaired surrogate is escaped.
   *
   * @throws CodecException NaN, an infinity, or what is no JSON value
   */
  public static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(out, value, 0);
    return out.toString();
  }

  /** {@link #write} as UTF-8. */
  public static byte[] writeBytes(Object value) {
    return write(value).getBytes(StandardCharsets.UTF_8);
  }

  /** Whether a text is free of unpaired surrogates, so that a protobuf string can hold it. */
  static boolean isWellFormed(String text) {
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (!Character.isSurrogate(c)) {
        continue;
      }
      boolean pair =
          Character.isHighSurrogate(c)
              && i + 1 < text.length()
              && Character.isLowSurrogate(text.charAt(i + 1));
      if (!pair) {
        return false;
      }
      i++;
    }
    return true;
  }

  /** UTF-8, in which an unpaired surrogate takes its three-byte form. */
  static byte[] encode(String text) {
    if (isWellFormed(text)) {
      return text.getBytes(StandardCharsets.UTF_8);
    }
    ByteBuffer out = ByteBuffer.allocate(3 * text.length());
    for (int i = 0; i < text.length(); i++) {
      int code = text.codePointAt(i);
      if (code >= 0xD800 && code <= 0xDFFF) {
        out.put((byte) (0xE0 | code >> 12));
        out.put((byte) (0x80 | code >> 6 & 0x3F));
        out.put((byte) (0x80 | code & 0x3F));
      } else {
        out.put(Character.toString(code).getBytes(StandardCharsets.UTF_8));
        i += Character.charCount(code) - 1;
      }
    }
    byte[] bytes = new byte[out.position()];
    out.flip().get(bytes);
    return bytes;
  }

  /** The inverse of {@link #encode}. */
  static String decode(byte[] bytes) {
    StringBuilder text = new StringBuilder(bytes.length);
    int from = 0;
    for (int i = 0; i + 2 < bytes.length; i++) {
      // Only a surrogate's form begins with ED and a second byte from A0 on.
      if (bytes[i] == (byte) 0xED && (bytes[i + 1] & 0xE0) == 0xA0 && isTrail(bytes[i + 2])) {
        text.append(strict(bytes, from, i));
        text.append((char) (0xD000 | (bytes[i + 1] & 0x3F) << 6 | bytes[i + 2] & 0x3F));
        from = i + 3;
        i = from - 1;
      }
    }
    return text.append(strict(bytes, from, bytes.length)).toString();
  }

  private static boolean isTrail(byte b) {
    return (b & 0xC0) == 0x80;
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

  private static void write(StringBuilder out, Object value, int depth) {
    if (depth > WRITE_DEPTH) {
      throw tooDeep();
    }
    if (value == null || value instanceof Boolean || value instanceof Long) {
      out.append(value);
    } else if (value instanceof String text) {
      writeText(out, text);
    } else if (value instanceof Double real) {
      if (!Double.isFinite(real)) {
        throw new CodecException(real + " is not a JSON number");
      }
      out.append(real.doubleValue());
    } else if (value instanceof BigInteger integer) {
      out.append(integer);
    } else if (value instanceof Map<?, ?> object) {
      char before = '{';
      for (Map.Entry<?, ?> entry : object.entrySet()) {
        out.append(before);
        before = ',';
        writeText(out, (String) entry.getKey());
        out.append(':');
        write(out, entry.getValue(), depth + 1);
      }
      out.append(before == '{' ? "{}" : "}");
    } else if (value instanceof List<?> array) {
      char before = '[';
      for (Object element : array) {
        out.append(before);
        before = ',';
        write(out, element, depth + 1);
      }
      out.append(before == '[' ? "[]" : "]");
    } else {
      throw new CodecException(value.getClass().getSimpleName() + " is not a JSON type");
    }
  }

  private static void writeText(StringBuilder out, String text) {
    boolean plain = isWellFormed(text);
    out.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      switch (c) {
        case '"' -> out.append("\\\"");
        case '\\' -> out.append("\\\\");
        case '\n' -> out.append("\\n");
        case '\r' -> out.append("\\r");
        case '\t' -> out.append("\\t");
        default -> {
          if (c < 0x20 || !plain && Character.isSurrogate(c)) {
            out.append(String.format("\\u%04x", (int) c));
          } else {
            out.append(c);
          }
        }
      }
    }
    out.append('"');
  }

  private static CodecException tooDeep() {
    return new CodecException("nested deeper than " + MAX_DEPTH + " levels");
  }

  /** A parser over a text. */
  private static final class Reader {
    private final String text;
    private int at;

    Reader(String text) {
      this.text = text;
    }

    Object document() {
      Object value = value(0);
      skipSpace();
      if (at < text.length()) {
        throw invalid("the end was expected");
      }
      return value;
    }

    private Object value(int depth) {
      skipSpace();
      if (at >= text.length()) {
        throw invalid("a value was expected");
      }
      char c = text.charAt(at);
      return switch (c) {
        case '{' -> object(depth + 1);
        case '[' -> array(depth + 1);
        case '"' -> string();
        case 't' -> word("true", Boolean.TRUE);
        case 'f' -> word("false", Boolean.FALSE);
        case 'n' -> word("null", null);
        default -> number();
      };
    }

    private Map<String, Object> object(int depth) {
      open(depth);
      Map<String, Object> object = new LinkedHashMap<>();
      if (closes('}')) {
        return object;
      }
      while (true) {
        skipSpace();
        if (at >= text.length() || text.charAt(at) != '"') {
          throw invalid("a key was expected");
        }
        String key = string();
        skipSpace();
        expect(':');
        Object value = value(depth);
        object.put(key, value);
        if (closes('}')) {
          return object;
        }
        expect(',');
      }
    }

    private List<Object> array(int depth) {
      open(depth);
      List<Object> array = new ArrayList<>();
      if (closes(']')) {
        return array;
      }
      while (true) {
        array.add(value(depth));
        if (closes(']')) {
          return array;
        }
        expect(',');
      }
    }

    private void open(int depth) {
      if (depth > MAX_DEPTH) {
        throw tooDeep();
      }
      at++;
    }

    private boolean closes(char end) {
      skipSpace();
      if (at < text.length() && text.charAt(at) == end) {
        at++;
        return true;
      }
      return false;
    }

    private String string() {
      StringBuilder out = null;
      int from = ++at;
      while (at < text.length()) {
        char c = text.charAt(at);
        if (c == '"') {
          String rest = text.substring(from, at++);
          return out == null ? rest : out.append(rest).toString();
        }
        if (c < 0x20) {
          throw invalid("a control character in a string");
        }
        if (c == '\\') {
          out = out == null ? new StringBuilder() : out;
          out.append(text, from, at);
          at++;
          out.append(escape());
          from = at;
        } else {
          at++;
        }
      }
      throw invalid("a string without an end");
    }

    private char escape() {
      char c = at < text.length() ? text.charAt(at++) : ' ';
      return switch (c) {
        case '"', '\\', '/' -> c;
        case 'b' -> '\b';
        case 'f' -> '\f';
        case 'n' -> '\n';
        case 'r' -> '\r';
        case 't' -> '\t';
        case 'u' -> hex();
        default -> throw invalid("an unknown escape");
      };
    }

    private char hex() {
      int code = 0;
      for (int i = 0; i < 4; i++, at++) {
        char c = at < text.length() ? text.charAt(at) : ' ';
        int digit = c < 128 ? Character.digit(c, 16) : -1;
        if (digit < 0) {
          throw invalid("four hexadecimal digits were expected");
        }
        code = code << 4 | digit;
      }
      return (char) code;
    }

    private Object word(String word, Object value) {
      if (!text.startsWith(word, at)) {
        throw invalid("a value was expected");
      }
      at += word.length();
      return value;
    }

    private Object number() {
      int from = at;
      if (at < text.length() && text.charAt(at) == '-') {
        at++;
      }
      int first = at;
      int whole = digits();
      if (whole == 0 || whole > 1 && text.charAt(first) == '0') {
        at = from;
        throw invalid("a value was expected");
      }
      boolean real = false;
      if (at < text.length() && text.charAt(at) == '.') {
        real = true;
        at++;
        if (digits() == 0) {
          throw invalid("a digit was expected");
        }
      }
      if (at < text.length() && (text.charAt(at) == 'e' || text.charAt(at) == 'E')) {
        real = true;
        at++;
        if (at < text.length() && (text.charAt(at) == '+' || text.charAt(at) == '-')) {
          at++;
        }
        if (digits() == 0) {
          throw invalid("a digit was expected");
        }
      }
      String literal = text.substring(from, at);
      return real ? real(literal) : integer(literal, whole);
    }

    private static Object real(String literal) {
      double value = Double.parseDouble(literal);
      if (Double.isInfinite(value)) {
        throw new CodecException("a number is beyond the range of a double");
      }
      return value;
    }

    private static Object integer(String literal, int digits) {
      if (digits <= 18) {
        return Long.parseLong(literal);
      }
      if (digits > MAX_DIGITS) {
        throw new CodecException("not readable: an integer has more than 4,300 digits");
      }
      BigInteger value = new BigInteger(literal);
      if (value.bitLength() <= 63) {
        return value.longValue();
      }
      return value;
    }

    private int digits() {
      int from = at;
      while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
        at++;
      }
      return at - from;
    }

    private void skipSpace() {
      while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
        at++;
      }
    }

    private void expect(char c) {
      if (at >= text.length() || text.charAt(at) != c) {
        throw invalid("'" + c + "' was expected");
      }
      at++;
    }

    private CodecException invalid(String what) {
      return new CodecException("not valid JSON at character " + (at + 1) + ": " + what);
    }
  }
}
