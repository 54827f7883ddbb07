// Package serving has what every service of the examples needs: calls with a request_id that act once,
// errors with a reason of the contract, and requests that cannot be decoded.
package serving

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// AnswersKept is how many answers are remembered for repeats.
const AnswersKept = 128

// Once makes calls with a request_id act once: a repeat waits for the first call or gets its answer.
type Once[T any] struct {
	mu    sync.Mutex
	calls map[string]*call[T]
	// Ids of answered calls whose answers are kept, oldest first.
	answered []string
}

type call[T any] struct {
	request [sha256.Size]byte
	done    chan struct{}
	// These are set before done is closed.
	answer T
	err    *mesherr.Error
	// forgotten: the answer is not kept any more, but the id is.
	forgotten bool
}

// Do runs a call, or finds the one that has its id. The call goes on when the caller goes away.
// tryAnew says after which errors a repeat runs again.
func (o *Once[T]) Do(
	ctx context.Context, id string, request proto.Message,
	run func() (T, *mesherr.Error), tryAnew func(*mesherr.Error) bool,
) (T, error) {
	var none T
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return none, err
	}
	digest := sha256.Sum256(text)
	o.mu.Lock()
	known := o.calls[id]
	switch {
	case known == nil:
		known = &call[T]{request: digest, done: make(chan struct{})}
		if o.calls == nil {
			o.calls = make(map[string]*call[T])
		}
		o.calls[id] = known
		go o.finish(id, known, run, tryAnew)
	case known.request != digest:
		o.mu.Unlock()
		return none, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED,
			"a different request had this request_id", "request_id", id)
	case known.forgotten:
		o.mu.Unlock()
		return none, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SESSION_STATE,
			"the call was answered too long ago", "state", "answered")
	}
	o.mu.Unlock()
	select {
	case <-known.done:
		if known.err != nil {
			return none, known.err
		}
		return known.answer, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (o *Once[T]) finish(
	id string, one *call[T], run func() (T, *mesherr.Error), tryAnew func(*mesherr.Error) bool,
) {
	answer, err := run()
	o.mu.Lock()
	defer o.mu.Unlock()
	one.answer, one.err = answer, err
	close(one.done)
	if o.calls[id] != one { // it was forgotten meanwhile
		return
	}
	if err != nil && tryAnew(err) {
		delete(o.calls, id)
		return
	}
	o.answered = append(o.answered, id)
	if len(o.answered) > AnswersKept {
		oldest := o.answered[0]
		o.answered = o.answered[1:]
		// Who waits for the old one still holds it.
		o.calls[oldest] = &call[T]{request: o.calls[oldest].request, forgotten: true}
	}
}

// Forget removes an id, with which a later call begins anew.
func (o *Once[T]) Forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, id)
	o.answered = slices.DeleteFunc(o.answered, func(one string) bool { return one == id })
}

// Known is how many ids are known.
func (o *Once[T]) Known() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

// NothingWasDone says of an error that the call may be tried anew.
func NothingWasDone(err *mesherr.Error) bool {
	switch err.Reason {
	case errorsv1.ErrorReason_ERROR_REASON_QUEUE_FULL, errorsv1.ErrorReason_ERROR_REASON_SESSION_LIMIT,
		errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LIMIT, errorsv1.ErrorReason_ERROR_REASON_DRAINING:
		return true
	default:
		return false
	}
}
