package io.gymmesh.examples;

import io.grpc.ManagedChannel;
import io.gymmesh.agent.v1.GetAgentResponse;
import io.gymmesh.client.Channels;
import io.gymmesh.client.Codec;
import io.gymmesh.client.CollectOptions;
import io.gymmesh.client.Collector;
import io.gymmesh.client.DialOptions;
import io.gymmesh.client.Json;
import io.gymmesh.client.MeshException;
import io.gymmesh.client.Outcome;
import io.gymmesh.client.Results;
import io.gymmesh.client.TaskReader;
import io.gymmesh.rollout.v1.Task;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** Collects the rollouts of a task file from an agent, and writes their rows. */
public final class Collect {
  private static final String USAGE =
      "usage: collect --agent TARGET --input TASKS.jsonl --output ROWS.jsonl"
          + " [--failures FAILURES.jsonl] [--num-repeats N] [--concurrency C] [--deadline-s S]"
          + " [--call-per-rollout] [--ca CA.pem] [--cert OWN.pem --key OWN.key]"
          + " [--server-name NAME] [--token-file FILE]";
  private static final Set<String> FLAGS =
      Set.of(
          "--agent",
          "--input",
          "--output",
          "--failures",
          "--num-repeats",
          "--concurrency",
          "--deadline-s",
          "--ca",
          "--cert",
          "--key",
          "--server-name",
          "--token-file");
  private static final String CALL_PER_ROLLOUT = "--call-per-rollout";
  private static final Duration HELLO = Duration.ofSeconds(15);
  // Behind a name that is resolved to several instances, each stream may reach another one.
  private static final int BALANCED_STREAMS = 4;

  private int completed;
  private int failed;
  private final Map<String, Object> agents = new TreeMap<>();

  private Collect() {}

  /** Exits with 0: all completed, 1: nothing did, 2: wrong usage, 3: some failed. */
  public static void main(String[] args) {
    System.exit(new Collect().run(args));
  }

  private int run(String[] args) {
    Map<String, String> flags;
    CollectOptions options;
    ManagedChannel channel;
    try {
      flags = parse(List.of(args));
      options =
          CollectOptions.defaults()
              .withRepeats(Integer.parseInt(flags.getOrDefault("--num-repeats", "1")))
              .withConcurrency(Integer.parseInt(flags.getOrDefault("--concurrency", "64")))
              .withTimeout(seconds(flags.getOrDefault("--deadline-s", "900")))
              .withStreams(flags.get("--agent").startsWith("xds:") ? BALANCED_STREAMS : 1)
              .withCallPerRollout(flags.containsKey(CALL_PER_ROLLOUT));
      channel = Channels.open(flags.get("--agent"), dialOptions(flags));
    } catch (IllegalArgumentException wrong) {
      System.err.println(wrong.getMessage() + "\n" + USAGE);
      return 2;
    } catch (IOException wrong) {
      System.err.println(wrong);
      return 2;
    }
    try {
      Collector collector = new Collector(channel, options);
      GetAgentResponse agent = collector.agent(HELLO);
      TaskReader reader = new TaskReader(agent.getDefaultEnvironment(), agent.getName());
      return collect(collector, reader.read(Path.of(flags.get("--input"))), flags);
    } catch (TaskReader.TaskException wrong) {
      System.err.println(wrong.getMessage());
      return 2;
    } catch (MeshException error) {
      System.err.println(error.reasonName() + ": " + error.getMessage());
      return 1;
    } catch (IOException | UncheckedIOException error) {
      System.err.println(error);
      return 2;
    } finally {
      Channels.close(channel);
    }
  }

  private int collect(Collector collector, List<Task> tasks, Map<String, String> flags)
      throws IOException {
    long began = System.nanoTime();
    String failures = flags.get("--failures");
    try (BufferedWriter rows = writer(flags.get("--output"));
        BufferedWriter failureRows = failures == null ? null : writer(failures);
        Results results = collector.collect(tasks)) {
      while (results.hasNext()) {
        Outcome outcome = results.next();
        String line;
        try {
          line = Json.write(Codec.write(outcome.row()));
        } catch (IllegalArgumentException unwritable) {
          outcome = outcome.unwritable(unwritable);
          line = Json.write(Codec.write(outcome.row()));
        }
        if (outcome instanceof Outcome.Completed done) {
          write(rows, line);
          count(done);
          continue;
        }
        failed++;
        report((Outcome.Failed) outcome);
        if (failureRows != null) {
          write(failureRows, line);
        }
      }
    }
    Map<String, Object> summary = new LinkedHashMap<>();
    summary.put("completed", (long) completed);
    summary.put("failed", (long) failed);
    summary.put("wall_s", Math.round((System.nanoTime() - began) / 1e6) / 1e3);
    summary.put("agents", agents);
    System.out.println(Json.write(summary));
    if (failed == 0) {
      return 0;
    }
    return completed == 0 ? 1 : 3;
  }

  private void count(Outcome.Completed done) {
    completed++;
    String instance = done.rollout().getStarted().getAgentInstanceId();
    agents.merge(instance, 1L, (a, b) -> (Long) a + (Long) b);
  }

  private static void report(Outcome.Failed failed) {
    MeshException error = failed.error();
    System.err.println(
        failed.rollout().getRolloutId() + ": " + error.reasonName() + ": " + error.getMessage());
  }

  /** Writes a row, and has it on its way to the disk before the agent may forget the rollout. */
  private static void write(BufferedWriter file, String line) throws IOException {
    file.write(line);
    file.write('\n');
    file.flush();
  }

  private static BufferedWriter writer(String path) throws IOException {
    return Files.newBufferedWriter(Path.of(path), StandardCharsets.UTF_8);
  }

  private static Duration seconds(String text) {
    return Duration.ofMillis(Math.round(Double.parseDouble(text) * 1000));
  }

  private static DialOptions dialOptions(Map<String, String> flags) {
    return new DialOptions(
        path(flags.get("--ca")),
        path(flags.get("--cert")),
        path(flags.get("--key")),
        flags.get("--server-name"),
        path(flags.get("--token-file")));
  }

  private static Path path(String text) {
    return text == null ? null : Path.of(text);
  }

  private static Map<String, String> parse(List<String> args) {
    Map<String, String> flags = new HashMap<>();
    for (int i = 0; i < args.size(); i += 2) {
      if (args.get(i).equals(CALL_PER_ROLLOUT)) {
        flags.put(args.get(i--), "");
        continue;
      }
      if (!FLAGS.contains(args.get(i)) || i + 1 == args.size()) {
        throw new IllegalArgumentException("cannot read " + args.get(i));
      }
      flags.put(args.get(i), args.get(i + 1));
    }
    for (String required : List.of("--agent", "--input", "--output")) {
      if (!flags.containsKey(required)) {
        throw new IllegalArgumentException(required + " is required");
      }
    }
    return flags;
  }
}
