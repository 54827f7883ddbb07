package io.gymmesh.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * What a caller needs for a mesh with TLS or identities, as files; null for what it does not.
 *
 * @param authority PEM of the authority that signed the servers' certificates; turns TLS on
 * @param certificate the caller's own certificate, for servers that ask for one
 * @param key its key
 * @param serverName the name in the server's certificate, where it is not the address's host
 * @param tokenFile holds the caller's bearer token, which travels over TLS or to this machine
 */
public record DialOptions(
    Path authority, Path certificate, Path key, String serverName, Path tokenFile) {
  /** Neither TLS nor a token. */
  public static final DialOptions PLAIN = new DialOptions(null, null, null, null, null);

  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  /** Checks that what belongs together is there. */
  public DialOptions {
    if ((certificate == null) != (key == null)) {
      throw new IllegalArgumentException("a certificate and its key go together");
    }
    if (authority == null && (certificate != null || serverName != null)) {
      throw new IllegalArgumentException(
          "a certificate, key or server name needs the authority, too");
    }
  }

  ChannelCredentials credentials() throws IOException {
    if (authority == null) {
      return InsecureChannelCredentials.create();
    }
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    tls.trustManager(authority.toFile());
    if (certificate != null) {
      tls.keyManager(certificate.toFile(), key.toFile());
    }
    return tls.build();
  }

  /** What sends the token with each call; empty without one. */
  List<ClientInterceptor> interceptors(String target) throws IOException {
    if (tokenFile == null) {
      return List.of();
    }
    if (authority == null && !isLocal(target)) {
      throw new IllegalArgumentException(target + " is another machine: a token needs TLS");
    }
    String value = "Bearer " + Files.readString(tokenFile).strip();
    return List.of(
        new ClientInterceptor() {
          @Override
          public <Q, A> ClientCall<Q, A> interceptCall(
              MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
            return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
              @Override
              public void start(Listener<A> listener, Metadata headers) {
                if (!headers.containsKey(AUTHORIZATION)) {
                  headers.put(AUTHORIZATION, value);
                }
                super.start(listener, headers);
              }
            };
          }
        });
  }

  private static boolean isLocal(String target) {
    String address = target.substring(target.indexOf(":///") < 0 ? 0 : target.indexOf(":///") + 4);
    return target.startsWith("unix:")
        || address.matches("(localhost|127\\.\\d+\\.\\d+\\.\\d+|\\[::1])(:\\d+)?");
  }
}
