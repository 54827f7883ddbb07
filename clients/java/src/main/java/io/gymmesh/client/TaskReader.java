package io.gymmesh.client;

import com.google.protobuf.ByteString;
import io.gymmesh.responses.v1.ResponseParams;
import io.gymmesh.rollout.v1.Task;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.bouncycastle.crypto.digests.Blake2bDigest;

/**
 * Reads task files: JSON lines, one task each.
 *
 * <p>A row has {@code responses_create_params} and any other keys, which go to the verifier as the
 * task's payload. {@code prompt}, a text or a list of messages, may replace them; beside them it is
 * the verifier's. Of these {@code task_id}, {@code environment}, {@code agent}, {@code seed} and
 * {@code tags} are read here and are no part of the payload; a {@code task_id} that is a whole
 * number stays in it as well, and so does an environment or agent that is an object or a list, and
 * names nothing.
 *
 * @param defaultEnvironment for rows that name none; empty: such a row is refused
 * @param defaultAgent likewise
 */
public record TaskReader(String defaultEnvironment, String defaultAgent) {
  static final String PARAMS = "responses_create_params";
  private static final String PROMPT = "prompt";
  private static final Set<String> OWN_KEYS =
      Set.of("task_id", "environment", "agent", "seed", "tags");
  private static final long SEED_STEP = 1_000_003;
  private static final int ID_BYTES = 16;

  /** A row that is no task; the message says where and why. */
  public static final class TaskException extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    TaskException(String message) {
      super(message);
    }
  }

  /**
   * Reads the tasks of a file; blank lines are skipped.
   *
   * @throws TaskException a row is no task, or has the id of another one
   * @throws IOException the file cannot be read
   */
  public List<Task> read(Path file) throws IOException {
    List<Task> tasks = new ArrayList<>();
    Set<String> seen = new HashSet<>();
    Map<String, Integer> copies = new HashMap<>();
    byte[] all = Files.readAllBytes(file);
    int number = 0;
    for (int from = 0; from < all.length; ) {
      int to = from;
      while (to < all.length && all[to] != '\n') {
        to++;
      }
      number++;
      // A byte order mark may stand before the first row.
      if (number == 1 && to - from >= 3 && all[0] == (byte) 0xEF && all[1] == (byte) 0xBB) {
        from += 3;
      }
      try {
        String line = Json.decode(java.util.Arrays.copyOfRange(all, from, to));
        if (!line.isBlank()) {
          Task task = numbered(task(line), copies);
          if (!seen.add(task.getTaskId())) {
            throw new TaskException("task_id '" + task.getTaskId() + "' is there already");
          }
          tasks.add(task);
        }
      } catch (CodecException | TaskException problem) {
        throw new TaskException(file + ", line " + number + ": " + problem.getMessage());
      }
      from = to + 1;
    }
    return tasks;
  }

  /**
   * Reads one row.
   *
   * @throws TaskException it is no task
   * @throws CodecException it is not JSON
   */
  public Task task(String line) {
    if (!(Json.parse(line) instanceof Map<?, ?> parsed)) {
      throw new TaskException("every line must hold one JSON object");
    }
    Map<String, Object> row = copy(parsed);
    String conversation = row.containsKey(PROMPT) && !row.containsKey(PARAMS) ? PROMPT : PARAMS;
    Map<String, Object> params = params(row, conversation);
    check(row);
    Map<String, Object> payload = new LinkedHashMap<>(row);
    payload.remove(conversation);
    payload.entrySet().removeIf(e -> OWN_KEYS.contains(e.getKey()) && !isVerifiers(e));
    Object id = row.get("task_id");
    Task.Builder task =
        Task.newBuilder()
            .setTaskId(id == null ? contentId(row) : id.toString())
            .setEnvironment(named(row, "environment", defaultEnvironment))
            .setAgent(named(row, "agent", defaultAgent))
            .setParams(read(params))
            .setPayloadJson(ByteString.copyFrom(Json.writeBytes(payload)));
    if (row.get("seed") instanceof Long seed) {
      task.setSeed(seed);
    }
    if (row.get("tags") instanceof Map<?, ?> tags) {
      tags.forEach((key, value) -> task.putTags((String) key, (String) value));
    }
    return task.build();
  }

  /** A repeat's seed: the task's for repeat 0, another one for each further repeat. */
  public static long repeatSeed(long seed, int repeatIndex) {
    return seed + SEED_STEP * repeatIndex;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> copy(Map<?, ?> object) {
    return new LinkedHashMap<>((Map<String, Object>) object);
  }

  private static ResponseParams read(Map<String, Object> params) {
    return Codec.within(PARAMS, () -> Codec.read(params, ResponseParams.newBuilder()).build());
  }

  /** The Responses parameters of a row; {@code key} has them, or only their input. */
  private static Map<String, Object> params(Map<String, Object> row, String key) {
    boolean prompt = key.equals(PROMPT);
    Map<String, Object> params = new LinkedHashMap<>();
    if (prompt) {
      params.put("input", row.get(PROMPT));
    } else if (row.get(PARAMS) instanceof Map<?, ?> given) {
      params = copy(given);
    } else {
      throw new TaskException(PARAMS + " must be an object with an input; or add a prompt");
    }
    Object input = params.get("input");
    if (!(input instanceof List) && !(input instanceof String text && !text.isBlank())) {
      String place = prompt ? PROMPT : PARAMS + ".input";
      throw new TaskException(place + " must be a text or a list of items");
    }
    return params;
  }

  private static void check(Map<String, Object> row) {
    Object id = row.get("task_id");
    boolean number = id instanceof Long || id instanceof java.math.BigInteger;
    if (id != null && !number && !isName(id)) {
      throw new TaskException("task_id must be a text or a whole number");
    }
    for (String key : List.of("environment", "agent")) {
      Object name = row.get(key);
      if (name != null && !(name instanceof Map) && !(name instanceof List) && !isName(name)) {
        throw new TaskException(key + " must be a text");
      }
    }
    if (row.get("seed") != null && !(row.get("seed") instanceof Long)) {
      throw new TaskException("seed must be a whole number of 64 bits");
    }
    Object tags = row.get("tags");
    boolean labels = tags instanceof Map<?, ?> map && map.values().stream().allMatch(Json::isText);
    if (tags != null && !labels) {
      throw new TaskException("tags must be an object whose values are strings");
    }
  }

  private static boolean isName(Object value) {
    return Json.isText(value) && !((String) value).isEmpty();
  }

  private static boolean isVerifiers(Map.Entry<String, Object> entry) {
    Object value = entry.getValue();
    return switch (entry.getKey()) {
      case "task_id" -> value instanceof Long || value instanceof java.math.BigInteger;
      case "environment", "agent" -> value instanceof Map || value instanceof List;
      default -> false;
    };
  }

  private static String named(Map<String, Object> row, String key, String otherwise) {
    String name = row.get(key) instanceof String text ? text : otherwise;
    if (name.isEmpty()) {
      throw new TaskException("the row names no " + key + " and there is no default");
    }
    return name;
  }

  /** An id made of the row's content, the same in every language. */
  private static String contentId(Map<String, Object> row) {
    byte[] text = Json.writeBytes(Json.sorted(row));
    Blake2bDigest digest = new Blake2bDigest(Byte.SIZE * ID_BYTES);
    digest.update(text, 0, text.length);
    byte[] hash = new byte[ID_BYTES];
    digest.doFinal(hash, 0);
    return "t-" + HexFormat.of().formatHex(hash);
  }

  /** Tells identical rows apart that name no id. */
  private static Task numbered(Task task, Map<String, Integer> copies) {
    String id = task.getTaskId();
    if (!id.matches("t-[0-9a-f]{32}")) {
      return task;
    }
    int copy = copies.merge(id, 1, Integer::sum);
    return copy == 1 ? task : task.toBuilder().setTaskId(id + "-" + copy).build();
  }
}
