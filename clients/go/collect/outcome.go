package collect

import (
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// Outcome is a rollout's current outcome: exactly one of completed and failed.
type Outcome struct {
	Job Job
	// Rollout is complete if Failure is nil. Otherwise it has the events before the failure, and is
	// not data.
	Rollout *rolloutv1.Rollout
	// Failure is nil for a completed rollout.
	Failure *rolloutv1.Failure
	// AgentInstanceID is the agent that ran the last attempt; empty where none did.
	AgentInstanceID string
}

// Unwritable returns the failure that replaces an outcome whose rollout cannot be written as a row,
// for example because its evidence is not JSON. It has only the rollout's identity. A completed
// rollout is then the agent's failure; one that failed keeps its own.
func (o *Outcome) Unwritable(err error) *Outcome {
	failure := o.Failure
	if failure == nil {
		fault := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CONTRACT_VIOLATED,
			"the agent's rollout cannot be written as a row: "+err.Error(),
			"rule", "row", "expected", "", "got", "")
		failure = fault.Failure(rolloutv1.Boundary_BOUNDARY_AGENT)
		failure.Component = o.Job.Task.GetAgent()
	}
	bare := &rolloutv1.Rollout{
		RunId: o.Rollout.GetRunId(), TaskId: o.Rollout.GetTaskId(),
		RepeatIndex: o.Rollout.GetRepeatIndex(),
		RolloutId:   o.Rollout.GetRolloutId(), Attempt: o.Rollout.GetAttempt(),
	}
	return &Outcome{Job: o.Job, Rollout: bare, Failure: failure, AgentInstanceID: o.AgentInstanceID}
}
