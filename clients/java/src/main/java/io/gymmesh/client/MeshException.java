package io.gymmesh.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.gymmesh.errors.v1.ErrorReason;
import io.gymmesh.errors.v1.ReasonRule;
import io.gymmesh.rollout.v1.Boundary;
import java.time.Duration;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * A failure of a call, typed by a reason of {@code gymmesh.errors.v1}. Decide by code and reason,
 * never by the message's words.
 */
public final class MeshException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  static final String DOMAIN = "gymmesh";
  private static final long LONGEST_SECONDS = 315_576_000_000L; // of google.protobuf.Duration
  private static final Set<Status.Code> PASSING_CODES =
      EnumSet.of(
          Status.Code.UNAVAILABLE,
          Status.Code.DEADLINE_EXCEEDED,
          Status.Code.RESOURCE_EXHAUSTED,
          Status.Code.INTERNAL,
          Status.Code.UNKNOWN,
          Status.Code.CANCELLED);

  private final Status.Code code;
  private final String reasonName;
  private final transient Map<String, String> metadata;
  private final transient Duration retryAfter;
  private final transient List<Any> details;

  private MeshException(
      Status.Code code,
      String reasonName,
      String message,
      Map<String, String> metadata,
      Duration retryAfter,
      List<Any> details,
      Throwable cause) {
    super(message, cause);
    this.code = code;
    this.reasonName = reasonName;
    this.metadata = Map.copyOf(metadata);
    this.retryAfter = retryAfter;
    this.details = List.copyOf(details);
  }

  /** An error with the code that the reason comes with. */
  static MeshException of(ErrorReason reason, String message, Map<String, String> metadata) {
    Status.Code code = Status.fromCodeValue(Reasons.rule(reason).getCodeValue()).getCode();
    return new MeshException(code, Reasons.name(reason), message, metadata, null, List.of(), null);
  }

  /** The error that a call ended with. */
  public static MeshException from(Throwable thrown) {
    if (thrown instanceof MeshException known) {
      return known;
    }
    if (thrown instanceof StatusRuntimeException || thrown instanceof StatusException) {
      com.google.rpc.Status status = StatusProto.fromThrowable(thrown);
      boolean said = status != null && status.getDetailsCount() > 0;
      return from(said ? status : bare(Status.fromThrowable(thrown)), thrown);
    }
    Status unknown = Status.UNKNOWN.withDescription(String.valueOf(thrown));
    return from(bare(unknown), thrown);
  }

  /** The error that a status says, such as that of a rollout's failure. */
  public static MeshException from(com.google.rpc.Status status) {
    return from(status, null);
  }

  private static MeshException from(com.google.rpc.Status status, Throwable cause) {
    Status.Code code = Status.fromCodeValue(status.getCode()).getCode();
    String reason = null;
    Map<String, String> metadata = Map.of();
    Duration retryAfter = null;
    for (Any detail : status.getDetailsList()) {
      try {
        if (detail.is(ErrorInfo.class)) {
          ErrorInfo info = detail.unpack(ErrorInfo.class);
          if (info.getDomain().equals(DOMAIN) && reason == null) {
            reason = info.getReason();
            metadata = info.getMetadataMap();
          }
        } else if (detail.is(RetryInfo.class)) {
          com.google.protobuf.Duration delay = detail.unpack(RetryInfo.class).getRetryDelay();
          retryAfter = wait(delay);
        }
      } catch (InvalidProtocolBufferException e) {
        // A detail that is none says nothing.
        continue;
      }
    }
    String name = reason == null ? Reasons.name(ofBareCode(code, status.getMessage())) : reason;
    return new MeshException(
        code, name, status.getMessage(), metadata, retryAfter, status.getDetailsList(), cause);
  }

  /** A duration; none where it is no duration that protobuf allows. */
  private static Duration wait(com.google.protobuf.Duration delay) {
    boolean sound = delay.getSeconds() >= 0 && delay.getSeconds() <= LONGEST_SECONDS;
    return sound ? Duration.ofSeconds(delay.getSeconds(), Math.max(0, delay.getNanos())) : null;
  }

  private static com.google.rpc.Status bare(Status status) {
    return com.google.rpc.Status.newBuilder()
        .setCode(status.getCode().value())
        .setMessage(words(status))
        .build();
  }

  /** What a status says, with what this side met (a refused connection, a certificate). */
  private static String words(Status status) {
    StringBuilder words = new StringBuilder();
    if (status.getDescription() != null) {
      words.append(status.getDescription().lines().findFirst().orElse(""));
    }
    int left = 5;
    for (Throwable cause = status.getCause();
        cause != null && left-- > 0;
        cause = cause.getCause()) {
      String text = cause.getMessage();
      if (text != null && words.indexOf(text) < 0) {
        words.append(words.isEmpty() ? "" : ": ").append(text.lines().findFirst().orElse(""));
      }
    }
    return words.toString();
  }

  /** What a code means when a peer sent no ErrorInfo: a proxy, or the gRPC library itself. */
  private static ErrorReason ofBareCode(Status.Code code, String message) {
    return switch (code) {
      case UNAVAILABLE, CANCELLED -> ErrorReason.ERROR_REASON_PEER_UNAVAILABLE;
      case DEADLINE_EXCEEDED -> ErrorReason.ERROR_REASON_DEADLINE_PASSED;
      case UNIMPLEMENTED -> ErrorReason.ERROR_REASON_NOT_OFFERED;
      case UNAUTHENTICATED -> ErrorReason.ERROR_REASON_CREDENTIAL_INVALID;
      case PERMISSION_DENIED -> ErrorReason.ERROR_REASON_NOT_PERMITTED;
      case INVALID_ARGUMENT -> ErrorReason.ERROR_REASON_FIELD_INVALID;
      // A library speaks of the size of a message that it refuses.
      case RESOURCE_EXHAUSTED ->
          message.contains("message")
                  && (message.contains("larger")
                      || message.contains("size")
                      || message.contains("exceeds maximum"))
              ? ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE
              : ErrorReason.ERROR_REASON_QUEUE_FULL;
      default -> ErrorReason.ERROR_REASON_INTERNAL_FAULT;
    };
  }

  /** The status code that came. */
  public Status.Code code() {
    return code;
  }

  /** The reason; unspecified for one of a later contract. */
  public ErrorReason reason() {
    return Reasons.byName(reasonName).orElse(ErrorReason.ERROR_REASON_UNSPECIFIED);
  }

  /** The reason as it stands in ErrorInfo, such as {@code MODEL_TIMEOUT}. */
  public String reasonName() {
    return reasonName;
  }

  /** Whether the same may succeed when it is tried again, with new ids. */
  public boolean retrySafe() {
    return Reasons.byName(reasonName)
        .map(reason -> Reasons.rule(reason).getRetrySafe())
        .orElseGet(() -> PASSING_CODES.contains(code));
  }

  /** The boundary of a rollout that fails so; unspecified: the step that met it decides. */
  public Boundary boundary() {
    return Reasons.byName(reasonName)
        .map(reason -> Reasons.rule(reason).getBoundary())
        .orElse(Boundary.BOUNDARY_UNSPECIFIED);
  }

  /** What errors.proto lists for the reason. */
  public Map<String, String> metadata() {
    return metadata;
  }

  /** When a retry may succeed, where the failing side said so. */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(retryAfter);
  }

  /** All details of the status, the ErrorInfo included. */
  public List<Any> details() {
    return details;
  }

  /** The error as a status, such as stands in a rollout's failure. */
  public com.google.rpc.Status toStatus() {
    com.google.rpc.Status.Builder status =
        com.google.rpc.Status.newBuilder().setCode(code.value()).setMessage(getMessage());
    if (!details.isEmpty()) {
      return status.addAllDetails(details).build();
    }
    ErrorInfo info =
        ErrorInfo.newBuilder()
            .setDomain(DOMAIN)
            .setReason(reasonName)
            .putAllMetadata(metadata)
            .build();
    return status.addDetails(Any.pack(info)).build();
  }

  /** What each reason means, read from the contract's descriptors. */
  static final class Reasons {
    private static final String PREFIX = "ERROR_REASON_";

    private Reasons() {}

    static ReasonRule rule(ErrorReason reason) {
      return reason
          .getValueDescriptor()
          .getOptions()
          .getExtension(io.gymmesh.errors.v1.ErrorsProto.rule);
    }

    static String name(ErrorReason reason) {
      return reason.getValueDescriptor().getName().substring(PREFIX.length());
    }

    static Optional<ErrorReason> byName(String name) {
      try {
        return Optional.of(ErrorReason.valueOf(PREFIX + name));
      } catch (IllegalArgumentException e) {
        return Optional.empty();
      }
    }
  }
}
