package mesh

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	runv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/run/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// Runs looks at the runs of a collector and steers them. Errors are *mesherr.Error.
type Runs struct {
	client runv1.RunServiceClient
	token  string
}

// NewRuns returns the runs of the collector at a connection, to which its token is the credential.
func NewRuns(conn grpc.ClientConnInterface, token string) *Runs {
	return &Runs{client: runv1.NewRunServiceClient(conn), token: token}
}

func (r *Runs) authorised(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.token)
}

// List iterates over all runs, newest first, until the first error.
func (r *Runs) List(ctx context.Context) iter.Seq2[*runv1.Run, error] {
	return func(yield func(*runv1.Run, error) bool) {
		request := &runv1.ListRunsRequest{}
		for {
			page, err := r.client.ListRuns(r.authorised(ctx), request)
			if err != nil {
				yield(nil, mesherr.FromError(err))
				return
			}
			for _, run := range page.GetRuns() {
				if !yield(run, nil) {
					return
				}
			}
			if page.GetNextPageToken() == "" {
				return
			}
			request = &runv1.ListRunsRequest{PageToken: page.GetNextPageToken()}
		}
	}
}

// Get returns one run.
func (r *Runs) Get(ctx context.Context, runID string) (*runv1.Run, error) {
	reply, err := r.client.GetRun(r.authorised(ctx), &runv1.GetRunRequest{RunId: runID})
	if err != nil {
		return nil, mesherr.FromError(err)
	}
	return reply.GetRun(), nil
}

// Pause starts no more rollouts for now.
func (r *Runs) Pause(ctx context.Context, runID string) (*runv1.Run, error) {
	return r.control(ctx, &runv1.ControlRunRequest{
		RunId: runID, Command: &runv1.ControlRunRequest_Pause{Pause: &runv1.PauseRun{}},
	})
}

// Resume continues a run after Pause.
func (r *Runs) Resume(ctx context.Context, runID string) (*runv1.Run, error) {
	return r.control(ctx, &runv1.ControlRunRequest{
		RunId: runID, Command: &runv1.ControlRunRequest_Resume{Resume: &runv1.ResumeRun{}},
	})
}

// Drain lets the rollouts in flight end, and then stops the run.
func (r *Runs) Drain(ctx context.Context, runID string) (*runv1.Run, error) {
	return r.control(ctx, &runv1.ControlRunRequest{
		RunId: runID, Command: &runv1.ControlRunRequest_Drain{Drain: &runv1.DrainRun{}},
	})
}

// Cancel cancels the rollouts in flight, and stops the run.
func (r *Runs) Cancel(ctx context.Context, runID string) (*runv1.Run, error) {
	return r.control(ctx, &runv1.ControlRunRequest{
		RunId: runID, Command: &runv1.ControlRunRequest_Cancel{Cancel: &runv1.CancelRun{}},
	})
}

// Tune changes how many rollouts may be in flight, at least 1.
func (r *Runs) Tune(ctx context.Context, runID string, concurrency uint32) (*runv1.Run, error) {
	return r.control(ctx, &runv1.ControlRunRequest{
		RunId:   runID,
		Command: &runv1.ControlRunRequest_Tune{Tune: &runv1.TuneRun{Concurrency: &concurrency}},
	})
}

// CancelGroup cancels the rollouts of a task that are no longer wanted.
func (r *Runs) CancelGroup(ctx context.Context, runID, taskID string) (*runv1.Run, error) {
	return r.control(ctx, &runv1.ControlRunRequest{
		RunId:   runID,
		Command: &runv1.ControlRunRequest_CancelGroup{CancelGroup: &runv1.CancelGroup{TaskId: taskID}},
	})
}

func (r *Runs) control(ctx context.Context, request *runv1.ControlRunRequest) (*runv1.Run, error) {
	reply, err := r.client.ControlRun(r.authorised(ctx), request)
	if err != nil {
		return nil, mesherr.FromError(err)
	}
	return reply.GetRun(), nil
}

// Groups iterates over finished groups after a cursor, as they come, until the run has finished, the
// context ends, or the first error. To resume later, pass the last group's cursor.
func (r *Runs) Groups(
	ctx context.Context, request *runv1.StreamGroupsRequest,
) iter.Seq2[*runv1.StreamGroupsResponse, error] {
	return func(yield func(*runv1.StreamGroupsResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		groups, err := r.client.StreamGroups(r.authorised(ctx), request)
		for err == nil {
			var group *runv1.StreamGroupsResponse
			if group, err = groups.Recv(); err == nil && !yield(group, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, mesherr.FromError(err))
		}
	}
}
