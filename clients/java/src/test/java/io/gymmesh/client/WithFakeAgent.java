package io.gymmesh.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** Tests of which each has a fake agent, and a channel to it. */
abstract class WithFakeAgent {
  FakeAgent agent;
  ManagedChannel channel;

  @BeforeEach
  void open() throws IOException {
    agent = new FakeAgent();
    channel = Channels.open(agent.address());
  }

  @AfterEach
  void close() {
    Channels.close(channel);
    agent.close();
  }

  /** All outcomes. */
  static List<Outcome> all(Results collected) {
    List<Outcome> outcomes = new ArrayList<>();
    try (Results results = collected) {
      results.forEachRemaining(outcomes::add);
    }
    return outcomes;
  }

  /** Waits until something is so that the agent knows of. */
  void await(BooleanSupplier condition) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
    synchronized (agent) {
      while (!condition.getAsBoolean()) {
        assertTrue(System.nanoTime() < end, "it came to pass");
        agent.wait(50);
      }
    }
  }
}
