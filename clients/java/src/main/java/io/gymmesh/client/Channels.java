package io.gymmesh.client;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.io.IOException;
import java.util.concurrent.TimeUnit;

/** Channels to services of a mesh, set up as the contract asks for. */
public final class Channels {
  /** The largest message that anyone sends, in bytes. */
  public static final int MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

  // Servers close a connection that is pinged more often than once in five minutes. A timer may
  // fire a little early.
  private static final long KEEPALIVE_S = 310;

  private Channels() {}

  /**
   * Opens a channel without TLS.
   *
   * @param target {@code HOST:PORT}, {@code unix:PATH}, or a name for gRPC's own resolvers and load
   *     balancing, such as {@code xds:///agent.tool_loop}
   */
  public static ManagedChannel open(String target) {
    return open(target, InsecureChannelCredentials.create());
  }

  /** Opens a channel with these credentials; the caller shuts it down. */
  public static ManagedChannel open(String target, ChannelCredentials credentials) {
    return builder(target, credentials).build();
  }

  /**
   * Opens a channel over TLS or with a token, as the options say; the caller shuts it down.
   *
   * @throws IOException a file cannot be read, or is not what it should be
   * @throws IllegalArgumentException a token would travel in the clear to another machine
   */
  public static ManagedChannel open(String target, DialOptions options) throws IOException {
    ManagedChannelBuilder<?> builder = builder(target, options.credentials());
    builder.intercept(options.interceptors(target));
    if (options.serverName() != null) {
      builder.overrideAuthority(options.serverName());
    }
    return builder.build();
  }

  private static ManagedChannelBuilder<?> builder(String target, ChannelCredentials credentials) {
    return Grpc.newChannelBuilder(target, credentials)
        .maxInboundMessageSize(MAX_MESSAGE_BYTES)
        .keepAliveTime(KEEPALIVE_S, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(false);
  }

  /** Shuts a channel down and waits for a moment until it is. */
  public static void close(ManagedChannel channel) {
    channel.shutdownNow();
    try {
      channel.awaitTermination(5, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
