package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.gymmesh.agent.v1.AttemptRef;
import io.gymmesh.agent.v1.CollectEvents;
import io.gymmesh.agent.v1.CollectHello;
import io.gymmesh.agent.v1.CollectResponse;
import io.gymmesh.agent.v1.CollectStartRefused;
import io.gymmesh.agent.v1.CollectWelcome;
import io.gymmesh.client.Attempt.Key;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.rollout.v1.RolloutEvent;
import io.gymmesh.rollout.v1.RolloutEvent.EventCase;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Runs attempts at one agent instance, over a stream that outlives its connections.
 *
 * <p>A connection that breaks is made anew, and the stream goes on after the last event that came.
 * When that cannot be, all attempts in flight end in an error, and the next one begins a new
 * stream. Everything happens on one thread, that of {@code loop}.
 */
final class AgentStream implements AttemptRunner, AgentConnection.Listener {
  static final String CONTRACT_VERSION = "1.0";
  private static final int ASSUMED_CAPACITY = 1024;
  private static final long LONGEST_BACKOFF_MS = 2000;
  private static final long ACKNOWLEDGE_MS = 100;
  private static final long AVOID_NANOS = TimeUnit.SECONDS.toNanos(2);
  // A start stands in a message of its own, beside what the message adds to it.
  private static final int MAX_START_BYTES = Channels.MAX_MESSAGE_BYTES - 1024;

  // After one of these, going on with this stream does not help.
  private static final Set<ErrorReason> FINAL =
      EnumSet.of(
          ErrorReason.ERROR_REASON_NOT_OFFERED,
          ErrorReason.ERROR_REASON_CONTRACT_MISMATCH,
          ErrorReason.ERROR_REASON_CONTRACT_VIOLATED,
          ErrorReason.ERROR_REASON_DRAINING,
          ErrorReason.ERROR_REASON_CREDENTIAL_INVALID,
          ErrorReason.ERROR_REASON_NOT_PERMITTED,
          ErrorReason.ERROR_REASON_REQUIRED_FIELD_MISSING,
          ErrorReason.ERROR_REASON_FIELD_INVALID,
          ErrorReason.ERROR_REASON_CALLER_CANCELLED);

  private static final Set<EventCase> TERMINAL = EnumSet.of(EventCase.COMPLETED, EventCase.FAILED);

  /** A batch that came: its cursor, and how many outcomes in it are not stored yet. */
  private static final class Batch {
    final long cursor;
    int unstored;

    Batch(long cursor) {
      this.cursor = cursor;
    }
  }

  private final ManagedChannel channel;
  private final ScheduledExecutorService loop;
  private final StreamLimits limits;
  private final Map<Key, Attempt> inFlight = new LinkedHashMap<>();
  private final Set<Key> abandoned = new HashSet<>();
  private final Deque<Batch> batches = new ArrayDeque<>();
  private final Map<Key, Batch> unstored = new HashMap<>();
  private final ScheduledFuture<?> watch;
  private String id = UUID.randomUUID().toString();
  private String instance = "";
  private AgentConnection connection;
  private ScheduledFuture<?> reconnecting;
  private boolean acknowledging;
  private boolean closed;
  private boolean progressed;
  private long received;
  private long stored;
  private long owed;
  private long capacity;
  private long target;
  private long heardAt;
  private long beganAt;
  private long failingSince;
  private long backoffMs;
  private Long avoidUntil;
  private int reconnects;

  AgentStream(ManagedChannel channel, ScheduledExecutorService loop, StreamLimits limits) {
    this.channel = channel;
    this.loop = loop;
    this.limits = limits;
    long quarter = Math.max(1, limits.silence().toMillis() / 4);
    watch =
        loop.scheduleWithFixedDelay(this::checkSilence, quarter, quarter, TimeUnit.MILLISECONDS);
  }

  @Override
  public long places() {
    return target > 0 ? target : capacity > 0 ? capacity : ASSUMED_CAPACITY;
  }

  @Override
  public double busyness() {
    boolean avoided = avoidUntil != null && System.nanoTime() - avoidUntil < 0;
    return (double) inFlight.size() / places() + (avoided ? 1e6 : 0);
  }

  /** How often a connection was made anew. */
  int reconnects() {
    return reconnects;
  }

  @Override
  public void start(Attempt attempt) {
    int size = attempt.request.getSerializedSize();
    if (size > MAX_START_BYTES) {
      // Others share the stream's messages: what no agent takes must not break it for them.
      attempt.done.accept(tooLarge(size));
      return;
    }
    inFlight.put(attempt.key, attempt);
    if (connection != null && connection.welcomed()) {
      connection.start(attempt);
    } else if (connection == null && reconnecting == null) {
      failingSince = System.nanoTime();
      backoffMs = limits.backoff().toMillis();
      connect();
    }
  }

  @Override
  public void cancel(Key key) {
    Attempt attempt = inFlight.remove(key);
    if (attempt == null) {
      return;
    }
    if (connection != null) {
      connection.forget(attempt);
    }
    if (attempt.sent) {
      abandoned.add(key);
      if (connection != null) {
        connection.cancel(List.of(key));
      }
    }
  }

  @Override
  public void stored(Key key) {
    Batch batch = unstored.remove(key);
    if (batch != null) {
      batch.unstored--;
      advance();
    }
  }

  @Override
  public void close() {
    closed = true;
    watch.cancel(false);
    if (reconnecting != null) {
      reconnecting.cancel(false);
    }
    if (connection != null) {
      List<Key> keys = inFlight.values().stream().filter(a -> a.sent).map(a -> a.key).toList();
      connection.cancel(keys);
      acknowledge();
      connection.finish();
    }
    inFlight.clear();
  }

  // -- connections --------------------------------------------------------------------------------

  private void connect() {
    reconnecting = null;
    progressed = false;
    beganAt = System.nanoTime();
    owed = 0;
    AgentConnection made = new AgentConnection(channel, loop, this);
    connection = made;
    made.open(
        CollectHello.newBuilder()
            .setStreamId(id)
            .setLastCursor(received)
            .setCredit(limits.credit())
            .setContractVersion(CONTRACT_VERSION)
            .build());
    loop.schedule(() -> checkWelcome(made), limits.hello().toMillis(), TimeUnit.MILLISECONDS);
  }

  private void checkWelcome(AgentConnection made) {
    if (made == connection && !made.welcomed()) {
      made.end("no welcome arrived");
      lost(made, made.unavailable("did not answer hello"));
    }
  }

  private void checkSilence() {
    if (connection == null || !connection.welcomed() || inFlight.isEmpty()) {
      heardAt = System.nanoTime();
    } else if (System.nanoTime() - heardAt > limits.silence().toNanos()) {
      AgentConnection dead = connection;
      dead.end("no message arrived");
      lost(dead, dead.unavailable("sent nothing for " + limits.silence().toSeconds() + " s"));
    }
  }

  @Override
  public void lost(AgentConnection which, MeshException error) {
    if (which != connection || closed) {
      return;
    }
    connection = null;
    long now = System.nanoTime();
    if (progressed || now - beganAt >= limits.reconnect().toNanos()) {
      failingSince = now;
      backoffMs = limits.backoff().toMillis();
    }
    boolean givenUp = now - failingSince >= limits.reconnect().toNanos();
    if (FINAL.contains(error.reason()) || givenUp) {
      fail(error);
      return;
    }
    if (inFlight.isEmpty() && unstored.isEmpty()) {
      forget();
      return;
    }
    reconnects++;
    // Half of the wait is drawn, so that many collectors do not come back as one.
    long half = Math.max(1, backoffMs / 2);
    long wait = half + ThreadLocalRandom.current().nextLong(half);
    reconnecting = loop.schedule(this::connect, wait, TimeUnit.MILLISECONDS);
    backoffMs = Math.min(2 * backoffMs, LONGEST_BACKOFF_MS);
  }

  /** The stream is over: all that is in flight ends in this error. */
  private void fail(MeshException error) {
    avoidUntil = System.nanoTime() + AVOID_NANOS;
    List<Attempt> failed = new ArrayList<>(inFlight.values());
    inFlight.clear();
    forget();
    failed.forEach(attempt -> attempt.done.accept(attempt.sent ? lost(error) : error));
  }

  /**
   * The error for an attempt that the agent may have taken: what refuses a stream has not refused
   * it, and it must not be said again by the same number.
   */
  private MeshException lost(MeshException error) {
    return Run.REFUSALS.contains(error.reason())
        ? MeshException.of(
            ErrorReason.ERROR_REASON_PEER_UNAVAILABLE,
            "the agent has left the rollout: " + error.getMessage(),
            error.metadata())
        : error;
  }

  /** The next connection begins another stream. */
  private void forget() {
    id = UUID.randomUUID().toString();
    forgetEvents();
  }

  private void forgetEvents() {
    received = 0;
    stored = 0;
    batches.clear();
    unstored.clear();
    abandoned.clear();
  }

  // -- what comes ---------------------------------------------------------------------------------

  @Override
  public void hear(AgentConnection from, CollectResponse response) {
    if (from != connection || closed) {
      return;
    }
    heardAt = System.nanoTime();
    try {
      if (!from.welcomed()) {
        welcomed(from, response);
        return;
      }
      progressed = true;
      switch (response.getMessageCase()) {
        case EVENTS -> take(response.getEvents());
        case START_REFUSED -> refused(response.getStartRefused());
        case LOAD -> target = Integer.toUnsignedLong(response.getLoad().getTarget());
        default ->
            throw violation("events, start_refused or load", response.getMessageCase().name());
      }
    } catch (RuntimeException broken) {
      from.end(broken.getMessage());
      lost(from, MeshException.from(broken));
    }
  }

  private void welcomed(AgentConnection from, CollectResponse response) {
    if (!response.hasWelcome()) {
      throw violation("welcome", response.getMessageCase().name());
    }
    CollectWelcome welcome = response.getWelcome();
    checkContract(welcome.getContractVersion());
    capacity = Math.max(1, Integer.toUnsignedLong(welcome.getCapacity()));
    target = 0;
    from.welcome();
    // Another instance than before knows nothing of what runs at that one, whatever it says: the
    // same attempt at both would share one session.
    boolean moved = !instance.isEmpty() && !instance.equals(welcome.getInstanceId());
    instance = welcome.getInstanceId();
    if (!welcome.getResumed() || moved) {
      loseSent(from);
    }
    // Starts and cancels may have been lost with the last connection.
    for (Attempt attempt : List.copyOf(inFlight.values())) {
      attempt.repeated = attempt.sequence;
      if (attempt.sequence == 0) {
        from.start(attempt);
      }
    }
    from.cancel(abandoned);
    acknowledge();
  }

  /** The agent knows nothing of what it was asked for. */
  private void loseSent(AgentConnection from) {
    forgetEvents();
    List<Attempt> gone = inFlight.values().stream().filter(attempt -> attempt.sent).toList();
    gone.forEach(attempt -> inFlight.remove(attempt.key));
    MeshException error = from.unavailable("lost the rollout");
    gone.forEach(attempt -> attempt.done.accept(error));
  }

  private void take(CollectEvents batch) {
    owed += batch.getEventsCount();
    // Cursors are compared without a sign.
    if (Long.compareUnsigned(batch.getCursor(), received) > 0) {
      received = batch.getCursor();
      Batch came = new Batch(batch.getCursor());
      batches.add(came);
      for (RolloutEvent event : batch.getEventsList()) {
        take(event, came);
      }
      advance();
    }
    if (2 * owed >= limits.credit() && connection != null) {
      connection.grant(owed);
      owed = 0;
    }
  }

  private void take(RolloutEvent event, Batch batch) {
    Key key = new Key(event.getRolloutId(), event.getAttempt());
    boolean last = TERMINAL.contains(event.getEventCase());
    Attempt attempt = inFlight.get(key);
    if (attempt == null) {
      if (last) {
        abandoned.remove(key);
      }
      return;
    }
    if (attempt.repeated > 0 && event.getSequence() <= attempt.repeated) {
      return;
    }
    attempt.sequence++;
    try {
      attempt.fold.add(event);
    } catch (RuntimeException objection) {
      // Whatever is wrong with an event is its attempt's affair, and no other's.
      cancel(key);
      if (last) {
        abandoned.remove(key); // it has ended there, too
      }
      attempt.done.accept(objection);
      return;
    }
    if (attempt.fold.ended()) {
      inFlight.remove(key);
      batch.unstored++;
      unstored.put(key, batch);
      attempt.done.accept(null);
    }
  }

  private void refused(CollectStartRefused refusal) {
    MeshException error = MeshException.from(refusal.getStatus());
    if (error.reason() == ErrorReason.ERROR_REASON_DRAINING) {
      avoidUntil = System.nanoTime() + AVOID_NANOS;
    }
    for (AttemptRef ref : refusal.getAttemptsList()) {
      Key key = new Key(ref.getRolloutId(), Math.max(1, ref.getAttempt()));
      abandoned.remove(key);
      Attempt attempt = inFlight.remove(key);
      if (attempt != null) {
        attempt.done.accept(error);
      }
    }
  }

  // -- what is stored -----------------------------------------------------------------------------

  private void advance() {
    long before = stored;
    while (!batches.isEmpty() && batches.peek().unstored == 0) {
      stored = batches.remove().cursor;
    }
    if (stored != before && !acknowledging) {
      acknowledging = true;
      loop.schedule(this::acknowledge, ACKNOWLEDGE_MS, TimeUnit.MILLISECONDS);
    }
  }

  private void acknowledge() {
    acknowledging = false;
    if (connection != null && stored != 0) {
      connection.acknowledge(stored);
    }
  }

  // -- errors -------------------------------------------------------------------------------------

  private static MeshException violation(String expected, String got) {
    return MeshException.of(
        ErrorReason.ERROR_REASON_CONTRACT_VIOLATED,
        "the agent broke the contract of Collect: expected " + expected + ", got " + got,
        Map.of("rule", "collect", "expected", expected, "got", got));
  }

  private static MeshException tooLarge(int size) {
    return MeshException.of(
        ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE,
        "the task has " + size + " bytes, and no message is as large",
        Map.of("limit_bytes", String.valueOf(MAX_START_BYTES), "size_bytes", String.valueOf(size)));
  }

  private static void checkContract(String theirs) {
    if (!theirs.isEmpty() && !theirs.split("\\.")[0].equals(CONTRACT_VERSION.split("\\.")[0])) {
      throw MeshException.of(
          ErrorReason.ERROR_REASON_CONTRACT_MISMATCH,
          "the agent speaks contract version " + theirs + " and this client " + CONTRACT_VERSION,
          Map.of("ours", CONTRACT_VERSION, "theirs", theirs));
    }
  }
}
