package io.gymmesh.client;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import io.gymmesh.run.v1.CancelGroup;
import io.gymmesh.run.v1.CancelRun;
import io.gymmesh.run.v1.ControlRunRequest;
import io.gymmesh.run.v1.DrainRun;
import io.gymmesh.run.v1.GetRunRequest;
import io.gymmesh.run.v1.ListRunsRequest;
import io.gymmesh.run.v1.ListRunsResponse;
import io.gymmesh.run.v1.PauseRun;
import io.gymmesh.run.v1.ResumeRun;
import io.gymmesh.run.v1.Run;
import io.gymmesh.run.v1.RunServiceGrpc;
import io.gymmesh.run.v1.RunServiceGrpc.RunServiceBlockingStub;
import io.gymmesh.run.v1.StreamGroupsRequest;
import io.gymmesh.run.v1.StreamGroupsResponse;
import io.gymmesh.run.v1.TuneRun;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * Looks at a collector's runs and steers them. Every call has a deadline, and fails with a {@link
 * MeshException}.
 */
public final class RunControl {
  private final RunServiceBlockingStub stub;
  private final Duration timeout;

  /**
   * Talks to the collector behind this channel.
   *
   * @param token the collector's own, which it asks of every caller
   * @param timeout how long a call may take
   */
  public RunControl(ManagedChannel channel, String token, Duration timeout) {
    Metadata headers = new Metadata();
    headers.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
    this.stub =
        RunServiceGrpc.newBlockingStub(channel)
            .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
    this.timeout = timeout;
  }

  /** All runs, newest first. */
  public List<Run> list() {
    List<Run> runs = new ArrayList<>();
    String page = "";
    do {
      ListRunsRequest request = ListRunsRequest.newBuilder().setPageToken(page).build();
      ListRunsResponse response = call(stub -> stub.listRuns(request));
      runs.addAll(response.getRunsList());
      page = response.getNextPageToken();
    } while (!page.isEmpty());
    return runs;
  }

  /** One run. */
  public Run get(String runId) {
    GetRunRequest request = GetRunRequest.newBuilder().setRunId(runId).build();
    return call(stub -> stub.getRun(request)).getRun();
  }

  /** Starts no more rollouts for now. */
  public Run pause(String runId) {
    return control(command(runId).setPause(PauseRun.getDefaultInstance()));
  }

  /** Goes on. */
  public Run resume(String runId) {
    return control(command(runId).setResume(ResumeRun.getDefaultInstance()));
  }

  /** Lets what is in flight end, then stops. */
  public Run drain(String runId) {
    return control(command(runId).setDrain(DrainRun.getDefaultInstance()));
  }

  /** Cancels what is in flight, then stops. */
  public Run cancel(String runId) {
    return control(command(runId).setCancel(CancelRun.getDefaultInstance()));
  }

  /** Changes the most rollouts in flight. */
  public Run tune(String runId, int concurrency) {
    return control(command(runId).setTune(TuneRun.newBuilder().setConcurrency(concurrency)));
  }

  /** Cancels the rollouts of a task's group. */
  public Run cancelGroup(String runId, String taskId) {
    return control(command(runId).setCancelGroup(CancelGroup.newBuilder().setTaskId(taskId)));
  }

  /**
   * Finished groups as they come, until the run is finished. What the iterator throws is for {@link
   * MeshException#from}.
   *
   * @param afterCursor the last group that was stored; zero: from the start
   * @param within how long the stream may take in all
   */
  public Iterator<StreamGroupsResponse> groups(String runId, long afterCursor, Duration within) {
    StreamGroupsRequest request =
        StreamGroupsRequest.newBuilder().setRunId(runId).setAfterCursor(afterCursor).build();
    return stub.withDeadlineAfter(within.toMillis(), TimeUnit.MILLISECONDS).streamGroups(request);
  }

  private static ControlRunRequest.Builder command(String runId) {
    return ControlRunRequest.newBuilder().setRunId(runId);
  }

  private Run control(ControlRunRequest.Builder command) {
    ControlRunRequest request = command.build();
    return call(stub -> stub.controlRun(request)).getRun();
  }

  private <T> T call(Function<RunServiceBlockingStub, T> method) {
    try {
      return method.apply(stub.withDeadlineAfter(timeout.toMillis(), TimeUnit.MILLISECONDS));
    } catch (StatusRuntimeException error) {
      throw MeshException.from(error);
    }
  }
}
