package collect

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
	"github.com/gymmesh/gymmesh/clients/go/rollouts"
)

// key names an attempt on the wire.
type key struct {
	rolloutID string
	attempt   uint32
}

func keyOf(ref *agentv1.AttemptRef) key {
	return key{ref.GetRolloutId(), max(ref.GetAttempt(), 1)}
}

func (k key) ref() *agentv1.AttemptRef {
	return &agentv1.AttemptRef{RolloutId: k.rolloutID, Attempt: k.attempt}
}

// attempt is one attempt in flight.
type attempt struct {
	key     key
	work    *work
	request *agentv1.RunRolloutRequest
	size    int // of the request, in bytes
	due     time.Time
	fold    *rollouts.Fold
	// sent says whether the agent may have heard of it.
	sent bool
	// broke is the rule of the stream law that its events broke; empty: none.
	broke rollouts.Rule
	// repeated: events up to this sequence may come again after a reconnection.
	repeated uint64
}

// result is how an attempt ended: with a rollout, whose outcome counts, or with an error.
type result struct {
	attempt  *attempt
	stream   *stream
	rollout  *rolloutv1.Rollout
	err      *mesherr.Error
	instance string
	// refused: the agent did not begin it.
	refused bool
}

// failure is the attempt's failure, nil for one that completed. One of the call is put to the
// agent, or to the deadline.
func (r *result) failure() *rolloutv1.Failure {
	if r.err == nil {
		return r.rollout.GetFailed().GetFailure()
	}
	late := r.err.Code == codes.DeadlineExceeded
	boundary := rolloutv1.Boundary_BOUNDARY_AGENT
	if late {
		boundary = rolloutv1.Boundary_BOUNDARY_DEADLINE
	}
	return &rolloutv1.Failure{
		Boundary:  boundary,
		Status:    r.err.Status(),
		RetrySafe: !late && r.maySucceedAgain(),
		Component: r.attempt.work.job.Task.GetAgent(),
	}
}

// maySucceedAgain says whether another attempt makes sense after this one's call or stream broke.
func (r *result) maySucceedAgain() bool {
	if rule := r.attempt.broke; rule != "" {
		return rule == rollouts.RuleTruncated
	}
	switch r.err.Reason {
	case errorsv1.ErrorReason_ERROR_REASON_ROLLOUT_EXISTS:
		// What runs there already is done with; the next attempt has a number of its own.
		return r.attempt.key.attempt > 0
	case errorsv1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE:
		return r.attempt.fold.Sequence() > 0 // else it would be as large again
	}
	return r.attempt.fold.Sequence() > 0 || isPassing(r.err.Code)
}

// isPassing says whether a call that failed so before any event came may fare better the next time.
// A server that sheds load says CANCELLED.
func isPassing(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Canceled, codes.Unknown:
		return true
	default:
		return false
	}
}

func unavailable(sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, sentence)
}

func violated(sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CONTRACT_VIOLATED, sentence, "rule", "collect")
}

// lawBroken notes which rule of the stream law the attempt's events broke, and is the error for it.
func (a *attempt) lawBroken(err error) *mesherr.Error {
	rule := rollouts.Rule("unknown")
	var violation *rollouts.StreamViolation
	if errors.As(err, &violation) {
		rule = violation.Rule
	}
	a.broke = rule
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CONTRACT_VIOLATED,
		"the agent's stream broke the stream law: "+err.Error(), "rule", string(rule))
}
