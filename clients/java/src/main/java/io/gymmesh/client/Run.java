package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.gymmesh.agent.v1.RunRolloutRequest;
import io.gymmesh.client.Attempt.Key;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.rollout.v1.Boundary;
import io.gymmesh.rollout.v1.Failure;
import io.gymmesh.rollout.v1.Rollout;
import io.gymmesh.rollout.v1.Task;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * A run: starts rollouts, tries them again where that is safe, and hands their outcomes out.
 *
 * <p>Its state belongs to the thread of {@code loop}, but for the signals.
 */
final class Run {
  /** How long past its deadline an attempt is waited for, so that the agent can say that it is. */
  private static final long DEADLINE_SLACK_MS = 5000;

  private static final long LONGEST_WAIT_MS = 60_000;
  private static final long CLOSE_MS = 3000;

  // Refused before it was begun, which is no attempt.
  private static final Set<ErrorReason> NOT_TAKEN =
      EnumSet.of(
          ErrorReason.ERROR_REASON_SERVICE_NOT_FOUND,
          ErrorReason.ERROR_REASON_PEER_UNAVAILABLE,
          ErrorReason.ERROR_REASON_MUX_BROKEN,
          ErrorReason.ERROR_REASON_DRAINING,
          ErrorReason.ERROR_REASON_QUEUE_FULL);
  // An agent's answer to an attempt that it has not taken.
  static final Set<ErrorReason> REFUSALS =
      EnumSet.of(ErrorReason.ERROR_REASON_QUEUE_FULL, ErrorReason.ERROR_REASON_DRAINING);
  // A call that failed with one of these before any event came may fare better the next time.
  private static final Set<Status.Code> PASSING =
      EnumSet.of(
          Status.Code.UNAVAILABLE,
          Status.Code.RESOURCE_EXHAUSTED,
          Status.Code.ABORTED,
          Status.Code.CANCELLED,
          Status.Code.UNKNOWN);

  /** A rollout that was asked for and has no outcome yet. */
  private static final class Job {
    final Task task;
    final int repeat;
    final String rolloutId;
    int number;
    int counted;
    int failures;
    Long refusedSince;

    Job(Task task, int repeat, String rolloutId) {
      this.task = task;
      this.repeat = repeat;
      this.rolloutId = rolloutId;
    }
  }

  /**
   * What the reader takes: an outcome, or neither it nor an error at the end.
   *
   * @param outcome an outcome
   * @param key its attempt
   * @param error what ended the run
   */
  record Signal(Outcome outcome, Key key, RuntimeException error) {}

  final BlockingQueue<Signal> signals = new LinkedBlockingQueue<>();

  private final CollectOptions options;
  private final Iterator<Task> tasks;
  private final ScheduledExecutorService loop =
      Executors.newSingleThreadScheduledExecutor(Run::daemon);
  private final List<AttemptRunner> runners = new ArrayList<>();
  private final Deque<Job> again = new ArrayDeque<>();
  private Task task;
  private int nextRepeat;
  private int inFlight;
  private int waiting;
  private int untaken;
  private int unstored;
  private boolean exhausted;
  private boolean over;

  Run(ManagedChannel channel, CollectOptions options, StreamLimits limits, Iterator<Task> tasks) {
    this.options = options;
    this.tasks = tasks;
    if (options.callPerRollout()) {
      runners.add(new AgentCalls(channel, loop));
      return;
    }
    for (int i = 0; i < options.streams(); i++) {
      runners.add(new AgentStream(channel, loop, limits));
    }
  }

  void begin() {
    post(this::fill);
  }

  void cancel() {
    post(this::end);
  }

  /** The next signal was taken. */
  void taken() {
    post(
        () -> {
          untaken--;
          fill();
        });
  }

  /** An outcome is stored: its agent may forget it. */
  void stored(Key key) {
    post(
        () -> {
          unstored--;
          runners.forEach(runner -> runner.stored(key));
          fill();
        });
  }

  private void post(Runnable work) {
    try {
      loop.execute(() -> guarded(work));
    } catch (java.util.concurrent.RejectedExecutionException ended) {
      // The run is over; there is nothing left to do.
      return;
    }
  }

  /** What nobody foresaw ends the run with its error, rather than leaving it waiting. */
  private void guarded(Runnable work) {
    try {
      work.run();
    } catch (RuntimeException unforeseen) {
      finish(unforeseen);
    }
  }

  // -- starting -----------------------------------------------------------------------------------

  private void fill() {
    try {
      while (!over && inFlight < places() && begun() < 2L * options.concurrency()) {
        Job job = again.isEmpty() ? nextJob() : again.remove();
        if (job == null) {
          break;
        }
        start(job);
      }
    } catch (RuntimeException unreadable) {
      finish(unreadable);
      return;
    }
    if (exhausted && begun() == 0 && again.isEmpty() && unstored == 0) {
      finish(null);
    }
  }

  /** Rollouts that are begun and not handed out. */
  private long begun() {
    return (long) inFlight + waiting + untaken;
  }

  /** How many attempts may be in flight, going by what the agents say. */
  private long places() {
    long offered = runners.stream().mapToLong(AttemptRunner::places).sum();
    return Math.max(1, Math.min(options.concurrency(), offered));
  }

  private Job nextJob() {
    if (nextRepeat == options.repeats()) {
      task = null;
    }
    if (task == null) {
      if (exhausted || !tasks.hasNext()) {
        exhausted = true;
        return null;
      }
      task = tasks.next();
      nextRepeat = 0;
    }
    int repeat = nextRepeat++;
    return new Job(task, repeat, rolloutId(task, repeat));
  }

  private String rolloutId(Task task, int repeat) {
    String id = options.runId() + "/" + task.getTaskId() + "/" + repeat;
    boolean fine = id.length() <= 200 && id.chars().allMatch(c -> c > ' ' && c < 127);
    // Ids are printable, and of a length.
    return fine
        ? id
        : options.runId()
            + "/"
            + UUID.nameUUIDFromBytes(Json.encode(task.getTaskId()))
            + "/"
            + repeat;
  }

  private void start(Job job) {
    job.number++;
    Task.Builder asked = job.task.toBuilder();
    if (job.task.hasSeed()) {
      asked.setSeed(TaskReader.repeatSeed(job.task.getSeed(), job.repeat));
    }
    RunRolloutRequest request =
        RunRolloutRequest.newBuilder()
            .setTask(asked)
            .setRolloutId(job.rolloutId)
            .setAttempt(job.number)
            .setRunId(options.runId())
            .setOptions(options.rollout())
            .build();
    Fold fold =
        new Fold(job.rolloutId, job.number, options.runId(), job.task.getTaskId(), job.repeat);
    inFlight++;
    AttemptRunner runner =
        runners.stream().min(Comparator.comparingDouble(AttemptRunner::busyness)).orElseThrow();
    ScheduledFuture<?>[] alarm = new ScheduledFuture<?>[1];
    long due = System.nanoTime() + options.timeout().toNanos();
    Attempt attempt =
        new Attempt(
            request,
            fold,
            due,
            error -> {
              alarm[0].cancel(false);
              inFlight--;
              guarded(() -> ended(job, fold, error));
            });
    alarm[0] =
        loop.schedule(
            () -> {
              runner.cancel(attempt.key);
              attempt.done.accept(overdue());
            },
            options.timeout().toMillis() + DEADLINE_SLACK_MS,
            TimeUnit.MILLISECONDS);
    runner.start(attempt);
  }

  // -- ending -------------------------------------------------------------------------------------

  private void ended(Job job, Fold fold, RuntimeException error) {
    if (over) {
      return;
    }
    Rollout rollout = fold.partial();
    Key key = new Key(job.rolloutId, job.number);
    if (error == null && rollout.hasCompleted()) {
      hand(new Outcome.Completed(job.task, rollout), key);
    } else {
      Failure failure =
          error == null
              ? rollout.getFailed().getFailure()
              : failureOf(error, fold.begun(), job.task.getAgent());
      Duration wait = waitAgain(job, failure, fold.begun());
      if (wait == null) {
        hand(new Outcome.Failed(job.task, rollout, failure), key);
      } else {
        runners.forEach(runner -> runner.stored(key));
        waiting++;
        loop.schedule(() -> guarded(() -> tryAgain(job)), wait.toMillis(), TimeUnit.MILLISECONDS);
      }
    }
    post(this::fill);
  }

  private void tryAgain(Job job) {
    waiting--;
    again.add(job);
    fill();
  }

  /** How long to wait before the next attempt; null: there is none. */
  private Duration waitAgain(Job job, Failure failure, boolean begun) {
    if (!failure.getRetrySafe()) {
      return null;
    }
    MeshException error = MeshException.from(failure.getStatus());
    ErrorReason reason = error.reason();
    boolean noRoom =
        reason == ErrorReason.ERROR_REASON_QUEUE_FULL
            || reason == ErrorReason.ERROR_REASON_SESSION_LIMIT;
    boolean refused = noRoom || !begun && NOT_TAKEN.contains(reason);
    job.failures++;
    if (refused) {
      long now = System.nanoTime();
      job.refusedSince = job.refusedSince == null ? Long.valueOf(now) : job.refusedSince;
      if (now - job.refusedSince > options.patience().toNanos()) {
        return null;
      }
      if (!begun && REFUSALS.contains(reason)) {
        job.number--; // it was not taken: it is said again by the same number
      }
    } else {
      job.refusedSince = null;
      job.counted++;
      if (job.counted >= options.maxAttempts()) {
        return null;
      }
    }
    long doubled = firstWaitMs(reason) << Math.min(job.failures - 1, 16);
    long asked = error.retryAfter().map(Duration::toMillis).orElse(0L);
    long wait = Math.min(LONGEST_WAIT_MS, Math.max(doubled, asked));
    return Duration.ofMillis(wait + ThreadLocalRandom.current().nextLong(wait / 4 + 1));
  }

  private static long firstWaitMs(ErrorReason reason) {
    return switch (reason) {
      case ERROR_REASON_WEIGHTS_STALE -> 0;
      case ERROR_REASON_MODEL_RATE_LIMITED -> 5000;
      case ERROR_REASON_SERVICE_NOT_FOUND, ERROR_REASON_MODEL_SERVER_ERROR -> 2000;
      case ERROR_REASON_PEER_UNAVAILABLE,
          ERROR_REASON_MUX_BROKEN,
          ERROR_REASON_DRAINING,
          ERROR_REASON_QUEUE_FULL,
          ERROR_REASON_SESSION_LIMIT ->
          1000;
      default -> 500;
    };
  }

  /** The failure of an attempt whose call or stream broke. */
  private static Failure failureOf(RuntimeException error, boolean begun, String agent) {
    MeshException typed;
    boolean safe;
    if (error instanceof StreamViolation violation) {
      typed =
          MeshException.of(
              ErrorReason.ERROR_REASON_CONTRACT_VIOLATED,
              "the agent's stream broke the stream law: " + violation.getMessage(),
              Map.of(
                  "rule", violation.rule(),
                  "expected", violation.expected(),
                  "got", violation.got()));
      safe = false;
    } else {
      typed = MeshException.from(error);
      safe = begun || passes(typed);
    }
    boolean late = typed.code() == Status.Code.DEADLINE_EXCEEDED;
    return Failure.newBuilder()
        .setBoundary(late ? Boundary.BOUNDARY_DEADLINE : Boundary.BOUNDARY_AGENT)
        .setStatus(typed.toStatus())
        .setRetrySafe(safe && !late)
        .setComponent(agent)
        .build();
  }

  /** Whether what was refused so before any event came may fare better the next time. */
  private static boolean passes(MeshException error) {
    return switch (error.reason()) {
      case ERROR_REASON_MESSAGE_TOO_LARGE -> false; // it would be as large again
      case ERROR_REASON_ROLLOUT_EXISTS -> true; // the next attempt has a number of its own
      default -> PASSING.contains(error.code());
    };
  }

  private MeshException overdue() {
    return MeshException.of(
        ErrorReason.ERROR_REASON_DEADLINE_PASSED,
        "the rollout did not end within " + options.timeout().toMillis() / 1000.0 + " s",
        Map.of("method", "gymmesh.agent.v1.AgentService/Collect"));
  }

  // -- handing out --------------------------------------------------------------------------------

  private void hand(Outcome outcome, Key key) {
    untaken++;
    unstored++;
    signals.add(new Signal(outcome, key, null));
  }

  /** Everything has an outcome, or nothing more can be done. */
  private void finish(RuntimeException error) {
    if (!over) {
      end();
      signals.add(new Signal(null, null, error));
    }
  }

  private void end() {
    if (over) {
      return;
    }
    over = true;
    runners.forEach(AttemptRunner::close);
    loop.schedule(loop::shutdownNow, CLOSE_MS, TimeUnit.MILLISECONDS);
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "gymmesh-collect");
    thread.setDaemon(true);
    return thread;
  }
}
