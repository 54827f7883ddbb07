package main

import (
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	resourcev1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/resource/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// After so long without a call a session is closed.
const sessionIdle = 10 * time.Minute

// session is one attempt's pantry.
type session struct {
	id        string
	requestID string
	seed      int64
	// ctx ends when the session is closed.
	ctx   context.Context
	close context.CancelFunc
	tools serving.Once[*resourcev1.CallToolResponse]

	mu     sync.Mutex
	pantry pantry
	// calls are running now, the last one ended at lastCall.
	calls    int
	lastCall time.Time
}

// sessions are those of this instance.
type sessions struct {
	limit    int
	creating serving.Once[*session]

	mu       sync.Mutex
	open     map[string]*session
	draining bool
}

func newSessions(limit int) *sessions {
	return &sessions{limit: limit, open: make(map[string]*session)}
}

func (s *sessions) create(request *resourcev1.CreateSessionRequest) (*session, *mesherr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_DRAINING, "the server is shutting down")
	}
	if s.limit > 0 && len(s.open) >= s.limit {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SESSION_LIMIT,
			"there are as many sessions as may be", "limit", strconv.Itoa(s.limit))
	}
	ctx, cancel := context.WithCancel(context.Background())
	made := &session{
		id: rand.Text(), requestID: request.GetRequestId(), seed: seedOf(request), ctx: ctx, close: cancel,
		pantry: make(pantry), lastCall: time.Now(),
	}
	s.open[made.id] = made
	return made, nil
}

// get finds an open session, which is not idle until release is called.
func (s *sessions) get(id string) (found *session, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found = s.open[id]
	if found == nil {
		return nil, nil, notFound(id)
	}
	found.mu.Lock()
	found.calls++
	found.mu.Unlock()
	return found, func() {
		found.mu.Lock()
		defer found.mu.Unlock()
		found.calls--
		found.lastCall = time.Now()
	}, nil
}

func notFound(id string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND,
		"the session is not here, or not any more", "session_id", id)
}

func (s *sessions) remove(id string) {
	s.mu.Lock()
	found := s.open[id]
	delete(s.open, id)
	s.mu.Unlock()
	if found != nil {
		s.creating.Forget(found.requestID)
		found.close()
	}
}

// drain takes no new sessions any more, and waits until none is open, for a limited time. A graceful
// stop of the server would not: a session has no call in flight between two of its calls.
func (s *sessions) drain(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		s.draining = true
		left := len(s.open)
		s.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// sweep closes sessions that nobody calls, until the context ends.
func (s *sessions) sweep(ctx context.Context) {
	ticker := time.NewTicker(sessionIdle / 20)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, id := range s.idle(now) {
				s.remove(id)
			}
		}
	}
}

func (s *sessions) idle(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle []string
	for id, one := range s.open {
		one.mu.Lock()
		if one.calls == 0 && now.Sub(one.lastCall) > sessionIdle {
			idle = append(idle, id)
		}
		one.mu.Unlock()
	}
	return idle
}
