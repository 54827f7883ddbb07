package io.gymmesh.client;

import java.util.ArrayList;
import java.util.List;

/** A document or message that cannot be converted; the message is one sentence with the place. */
public final class CodecException extends IllegalArgumentException {
  private static final long serialVersionUID = 1L;

  private final String problem;
  private final transient List<Object> path;

  CodecException(String problem) {
    this(problem, List.of());
  }

  private CodecException(String problem, List<Object> path) {
    super(path.isEmpty() ? problem : spell(path) + ": " + problem);
    this.problem = problem;
    this.path = path;
  }

  /** What is wrong, without the place. */
  public String problem() {
    return problem;
  }

  /** Keys (String) and indices (Integer) from the document's root to the place. */
  public List<Object> path() {
    return path;
  }

  /** The same error, seen from one container further out. */
  CodecException within(Object step) {
    List<Object> longer = new ArrayList<>(path.size() + 1);
    longer.add(step);
    longer.addAll(path);
    return new CodecException(problem, List.copyOf(longer));
  }

  private static String spell(List<Object> path) {
    StringBuilder spelled = new StringBuilder();
    for (Object step : path) {
      if (step instanceof Integer) {
        spelled.append('[').append(step).append(']');
      } else {
        spelled.append(spelled.isEmpty() ? "" : ".").append(step);
      }
    }
    return spelled.toString();
  }
}
