package io.gymmesh.client;

import com.google.protobuf.ByteString;
import io.gymmesh.model.v1.Fork;
import io.gymmesh.model.v1.ForkReason;
import io.gymmesh.model.v1.TokenCapture;
import io.gymmesh.rollout.v1.ModelCallCompleted;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** The tokens of a rollout's model calls, whole again: events hold each token once. Pure. */
final class Tokens {
  private static final int WIDTH = 4; // bytes of a token id, and of a log probability

  /** A prompt that cannot be put together is null. */
  private record Call(ByteString prompt, ByteString output) {}

  private Tokens() {}

  /** By call: what a row holds with the last item that the call wrote. */
  static Map<String, Map<String, Object>> byCall(List<ModelCallCompleted> calls) {
    Map<String, Call> known = new HashMap<>();
    Map<String, Map<String, Object>> rows = new HashMap<>();
    for (ModelCallCompleted call : calls) {
      TokenCapture said = call.getTokens();
      if (said.getOutputTokenIds().isEmpty() && said.getPromptTokenIds().isEmpty()) {
        continue;
      }
      Call parent = call.getDetached() ? null : known.get(call.getParentCallId());
      Call tokens = new Call(prompt(said, parent), said.getOutputTokenIds());
      known.put(call.getCallId(), tokens);
      Map<String, Object> row = new LinkedHashMap<>();
      if (tokens.prompt() != null) {
        row.put("prompt_token_ids", ids(tokens.prompt()));
      }
      row.put("generation_token_ids", ids(tokens.output()));
      row.put("generation_log_probs", reals(said.getLogprobs()));
      rows.put(call.getCallId(), row);
    }
    return rows;
  }

  /**
   * What a row's metadata says of the weights that wrote what is to be learned from, and of its
   * forks; only what is. Other models have versions of their own.
   */
  static Map<String, Object> notes(List<ModelCallCompleted> calls) {
    TreeSet<Long> versions = new TreeSet<>(Long::compareUnsigned);
    List<Object> forks = new ArrayList<>();
    for (ModelCallCompleted call : calls) {
      if (call.getTrainable()) {
        call.getTokens().getWeightsList().forEach(span -> versions.add(span.getVersion()));
      }
      if (call.getTokens().hasFork()) {
        Fork fork = call.getTokens().getFork();
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("call_id", call.getCallId());
        row.put(
            "reason",
            fork.getReason() == ForkReason.UNRECOGNIZED
                ? String.valueOf(fork.getReasonValue())
                : Rows.name(fork.getReason(), "FORK_REASON_"));
        row.put("common_tokens", Integer.toUnsignedLong(fork.getCommonTokens()));
        forks.add(row);
      }
    }
    Map<String, Object> notes = new LinkedHashMap<>();
    if (!versions.isEmpty()) {
      notes.put("weights_versions", versions.stream().map(Rows::unsigned).toList());
    }
    if (!forks.isEmpty()) {
      notes.put("token_forks", forks);
    }
    return notes;
  }

  private static ByteString prompt(TokenCapture said, Call parent) {
    long size = Integer.toUnsignedLong(said.getPromptPrefixTokens()) * WIDTH;
    if (size == 0) {
      return said.getPromptTokenIds();
    }
    if (parent == null || parent.prompt() == null) {
      return null;
    }
    ByteString before = parent.prompt().concat(parent.output());
    return size > before.size()
        ? null
        : before.substring(0, (int) size).concat(said.getPromptTokenIds());
  }

  private static List<Object> ids(ByteString packed) {
    ByteBuffer buffer = packed.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    List<Object> ids = new ArrayList<>(packed.size() / WIDTH);
    while (buffer.remaining() >= WIDTH) {
      ids.add((long) buffer.getInt());
    }
    return ids;
  }

  /** Null for what JSON has no number for, such as that of a token that could not be sampled. */
  private static List<Object> reals(ByteString packed) {
    ByteBuffer buffer = packed.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    List<Object> reals = new ArrayList<>(packed.size() / WIDTH);
    while (buffer.remaining() >= WIDTH) {
      double real = buffer.getFloat();
      reals.add(Double.isFinite(real) ? real : null);
    }
    return reals;
  }
}
