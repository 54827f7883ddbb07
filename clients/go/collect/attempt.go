package collect

import (
	"time"

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
	due     time.Time
	fold    *rollouts.Fold
	// sent says whether the agent may have heard of it.
	sent bool
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

// failure is the attempt's failure, nil for one that completed.
func (r *result) failure() *rolloutv1.Failure {
	if r.err != nil {
		return r.err.Failure(rolloutv1.Boundary_BOUNDARY_AGENT)
	}
	return r.rollout.GetFailed().GetFailure()
}

func unavailable(sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, sentence)
}

func violated(sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CONTRACT_VIOLATED, sentence, "rule", "collect")
}
