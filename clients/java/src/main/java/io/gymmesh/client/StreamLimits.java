package io.gymmesh.client;

import java.time.Duration;

/**
 * Bounds of a stream.
 *
 * @param credit the most events on their way from the agent
 * @param hello within which an agent must answer hello
 * @param silence without a message, while attempts are in flight, after which a connection is taken
 *     for dead
 * @param reconnect after which a lost agent is given up, and all in flight with it
 * @param backoff the first wait before connecting again; it doubles up to two seconds
 */
record StreamLimits(
    long credit, Duration hello, Duration silence, Duration reconnect, Duration backoff) {
  static final StreamLimits DEFAULT =
      new StreamLimits(
          8192,
          Duration.ofSeconds(10),
          Duration.ofSeconds(45),
          Duration.ofSeconds(30),
          Duration.ofMillis(100));
}
