package main

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// How many answers are remembered for repeats.
const answersKept = 128

// once makes calls with a request_id act once: a repeat waits for the first call or gets its answer.
type once[T any] struct {
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

// do runs a call, or finds the one that has its id. The call goes on when the caller goes away.
// tryAnew says after which errors a repeat runs again.
func (o *once[T]) do(
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
			"another request came with this request_id", "request_id", id)
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

func (o *once[T]) finish(
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
	if len(o.answered) > answersKept {
		oldest := o.answered[0]
		o.answered = o.answered[1:]
		// Who waits for the old one still holds it.
		o.calls[oldest] = &call[T]{request: o.calls[oldest].request, forgotten: true}
	}
}

// forget removes an id, with which a later call begins anew.
func (o *once[T]) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.calls, id)
	o.answered = slices.DeleteFunc(o.answered, func(one string) bool { return one == id })
}

// nothingWasDone says of an error that the call may be tried anew.
func nothingWasDone(err *mesherr.Error) bool {
	switch err.Reason {
	case errorsv1.ErrorReason_ERROR_REASON_QUEUE_FULL, errorsv1.ErrorReason_ERROR_REASON_SESSION_LIMIT,
		errorsv1.ErrorReason_ERROR_REASON_DRAINING:
		return true
	default:
		return false
	}
}
