package io.gymmesh.client;

/**
 * A stream of events that breaks the stream law of gymmesh/rollout/v1/rollout.proto.
 *
 * <p>The rules: {@code started}, {@code sequence}, {@code identity}, {@code after_terminal}, {@code
 * truncated}, {@code unknown_event}, {@code unverified}, {@code terminal}.
 */
public final class StreamViolation extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final String rule;
  private final String expected;
  private final String got;

  StreamViolation(String rule, String sentence) {
    this(rule, sentence, "", "");
  }

  StreamViolation(String rule, String sentence, Object expected, Object got) {
    super(rule + ": " + sentence);
    this.rule = rule;
    this.expected = String.valueOf(expected);
    this.got = String.valueOf(got);
  }

  /** The rule's name. */
  public String rule() {
    return rule;
  }

  /** What the law asks for; may be empty. */
  public String expected() {
    return expected;
  }

  /** What came instead; may be empty. */
  public String got() {
    return got;
  }
}
