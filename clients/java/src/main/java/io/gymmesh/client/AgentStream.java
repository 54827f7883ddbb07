package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.gymmesh.agent.v1.AgentServiceGrpc;
import io.gymmesh.agent.v1.AttemptRef;
import io.gymmesh.agent.v1.CollectAck;
import io.gymmesh.agent.v1.CollectCancels;
import io.gymmesh.agent.v1.CollectCredit;
import io.gymmesh.agent.v1.CollectEvents;
import io.gymmesh.agent.v1.CollectHello;
import io.gymmesh.agent.v1.CollectRequest;
import io.gymmesh.agent.v1.CollectResponse;
import io.gymmesh.agent.v1.CollectStart;
import io.gymmesh.agent.v1.CollectStartRefused;
import io.gymmesh.agent.v1.CollectStarts;
import io.gymmesh.agent.v1.CollectWelcome;
import io.gymmesh.client.Attempt.Key;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.rollout.v1.RolloutEvent;
import io.gymmesh.rollout.v1.RolloutEvent.EventCase;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
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
final class AgentStream implements AttemptRunner {
  static final String CONTRACT_VERSION = "1.0";
  private static final int ASSUMED_CAPACITY = 1024;
  private static final long LONGEST_DAYS = 7;
  private static final long LONGEST_BACKOFF_MS = 2000;
  private static final long ACKNOWLEDGE_MS = 100;
  private static final long AVOID_NANOS = TimeUnit.SECONDS.toNanos(2);
  private static final int MAX_STARTS = 256;
  private static final int MAX_START_BYTES = 256 * 1024;

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
  private final List<Attempt> unsaid = new ArrayList<>();
  private final ScheduledFuture<?> watch;
  private String id = UUID.randomUUID().toString();
  private Connection connection;
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
    inFlight.put(attempt.key, attempt);
    if (connection != null && connection.welcomed) {
      say(attempt);
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
    unsaid.remove(attempt);
    if (attempt.sent) {
      abandoned.add(key);
      sayCancels(List.of(key));
    }
  }

  @Override
  public boolean stored(Key key) {
    Batch batch = unstored.remove(key);
    if (batch == null) {
      return false;
    }
    batch.unstored--;
    advance();
    return true;
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
      sayCancels(keys);
      acknowledge();
      connection.requests.onCompleted();
      Connection last = connection;
      loop.schedule(() -> last.requests.cancel("the collector ended", null), 2, TimeUnit.SECONDS);
    }
    inFlight.clear();
  }

  // -- connections --------------------------------------------------------------------------------

  /** One connection; hands what comes to the loop. */
  private final class Connection
      implements ClientResponseObserver<CollectRequest, CollectResponse> {
    ClientCallStreamObserver<CollectRequest> requests;
    boolean welcomed;

    @Override
    public void beforeStart(ClientCallStreamObserver<CollectRequest> requests) {
      this.requests = requests;
    }

    @Override
    public void onNext(CollectResponse response) {
      later(() -> hear(this, response));
    }

    @Override
    public void onError(Throwable thrown) {
      later(() -> lost(this, MeshException.from(thrown)));
    }

    @Override
    public void onCompleted() {
      later(() -> lost(this, unavailable("ended the stream")));
    }

    private void later(Runnable work) {
      if (!loop.isShutdown()) {
        loop.execute(work);
      }
    }

    void end(String why) {
      requests.cancel(why, null);
    }
  }

  private void connect() {
    reconnecting = null;
    progressed = false;
    beganAt = System.nanoTime();
    owed = 0;
    // Otherwise gRPC would refuse at once for as long as its own wait lasts.
    channel.resetConnectBackoff();
    Connection made = new Connection();
    connection = made;
    AgentServiceGrpc.newStub(channel)
        .withDeadlineAfter(LONGEST_DAYS, TimeUnit.DAYS)
        .withMaxInboundMessageSize(Channels.MAX_MESSAGE_BYTES)
        .collect(made);
    CollectHello hello =
        CollectHello.newBuilder()
            .setStreamId(id)
            .setLastCursor(received)
            .setCredit(limits.credit())
            .setContractVersion(CONTRACT_VERSION)
            .build();
    made.requests.onNext(CollectRequest.newBuilder().setHello(hello).build());
    loop.schedule(() -> checkWelcome(made), limits.hello().toMillis(), TimeUnit.MILLISECONDS);
  }

  private void checkWelcome(Connection made) {
    if (made == connection && !made.welcomed) {
      made.end("no welcome came");
      lost(made, unavailable("did not answer hello"));
    }
  }

  private void checkSilence() {
    if (connection == null || !connection.welcomed || inFlight.isEmpty()) {
      heardAt = System.nanoTime();
    } else if (System.nanoTime() - heardAt > limits.silence().toNanos()) {
      Connection dead = connection;
      dead.end("nothing came");
      lost(dead, unavailable("sent nothing for " + limits.silence().toSeconds() + " s"));
    }
  }

  private void lost(Connection which, MeshException error) {
    if (which != connection || closed) {
      return;
    }
    connection = null;
    unsaid.clear();
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
    failed.forEach(attempt -> attempt.done.accept(error));
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

  private void hear(Connection from, CollectResponse response) {
    if (from != connection || closed) {
      return;
    }
    heardAt = System.nanoTime();
    try {
      if (!from.welcomed) {
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

  private void welcomed(Connection from, CollectResponse response) {
    if (!response.hasWelcome()) {
      throw violation("welcome", response.getMessageCase().name());
    }
    CollectWelcome welcome = response.getWelcome();
    checkContract(welcome.getContractVersion());
    capacity = Math.max(1, Integer.toUnsignedLong(welcome.getCapacity()));
    target = 0;
    from.welcomed = true;
    if (!welcome.getResumed()) {
      loseSent();
    }
    // Starts and cancels may have been lost with the last connection.
    for (Attempt attempt : List.copyOf(inFlight.values())) {
      attempt.repeated = attempt.sequence;
      if (attempt.sequence == 0) {
        say(attempt);
      }
    }
    sayCancels(abandoned);
    acknowledge();
  }

  /** The agent knows nothing of what it was asked for. */
  private void loseSent() {
    forgetEvents();
    List<Attempt> gone = inFlight.values().stream().filter(attempt -> attempt.sent).toList();
    gone.forEach(attempt -> inFlight.remove(attempt.key));
    MeshException error = unavailable("lost the rollout");
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
      CollectCredit credit = CollectCredit.newBuilder().setEvents(owed).build();
      connection.requests.onNext(CollectRequest.newBuilder().setCredit(credit).build());
      owed = 0;
    }
  }

  private void take(RolloutEvent event, Batch batch) {
    Key key = new Key(event.getRolloutId(), event.getAttempt());
    Attempt attempt = inFlight.get(key);
    if (attempt == null) {
      if (event.getEventCase() == EventCase.COMPLETED || event.getEventCase() == EventCase.FAILED) {
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

  // -- what leaves --------------------------------------------------------------------------------

  /** Starts an attempt together with others of this moment. */
  private void say(Attempt attempt) {
    attempt.sent = true;
    unsaid.add(attempt);
    if (unsaid.size() == 1) {
      loop.execute(this::sayStarts);
    }
  }

  private void sayStarts() {
    if (connection == null || !connection.welcomed || closed) {
      return;
    }
    List<Attempt> attempts = List.copyOf(unsaid);
    unsaid.clear();
    CollectStarts.Builder starts = CollectStarts.newBuilder();
    int bytes = 0;
    for (Attempt attempt : attempts) {
      int size = attempt.request.getSerializedSize();
      if (starts.getStartsCount() == MAX_STARTS || bytes > 0 && bytes + size > MAX_START_BYTES) {
        connection.requests.onNext(CollectRequest.newBuilder().setStarts(starts).build());
        starts.clear();
        bytes = 0;
      }
      bytes += size;
      long left = TimeUnit.NANOSECONDS.toMillis(attempt.dueNanos - System.nanoTime());
      starts.addStarts(
          CollectStart.newBuilder().setRequest(attempt.request).setTimeoutMs(Math.max(1, left)));
    }
    if (starts.getStartsCount() > 0) {
      connection.requests.onNext(CollectRequest.newBuilder().setStarts(starts).build());
    }
  }

  private void sayCancels(Collection<Key> keys) {
    if (connection == null || !connection.welcomed || keys.isEmpty()) {
      return;
    }
    CollectCancels cancels =
        CollectCancels.newBuilder().addAllAttempts(keys.stream().map(Key::ref).toList()).build();
    connection.requests.onNext(CollectRequest.newBuilder().setCancels(cancels).build());
  }

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
    if (connection != null && connection.welcomed && stored != 0) {
      CollectAck ack = CollectAck.newBuilder().setCursor(stored).build();
      connection.requests.onNext(CollectRequest.newBuilder().setAck(ack).build());
    }
  }

  // -- errors -------------------------------------------------------------------------------------

  private MeshException unavailable(String what) {
    String address = channel.authority();
    return MeshException.of(
        ErrorReason.ERROR_REASON_PEER_UNAVAILABLE,
        "the agent at " + address + " " + what,
        Map.of("address", address));
  }

  private static MeshException violation(String expected, String got) {
    return MeshException.of(
        ErrorReason.ERROR_REASON_CONTRACT_VIOLATED,
        "the agent broke the contract of Collect: " + expected + " was due, " + got + " came",
        Map.of("rule", "collect", "expected", expected, "got", got));
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
