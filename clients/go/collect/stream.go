package collect

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// Events that may be on their way from the agent.
const credit = 8192

// An agent keeps a margin of a deadline so that `failed` (DEADLINE) still arrives; after this much
// more the attempt ends here.
const deadlineGrace = 10 * time.Second

// assumedPlaces are those of an agent that has not said how many it has.
const assumedPlaces = 1024

// batch is one that came: its cursor, and how many outcomes in it are not stored yet.
type batch struct {
	cursor   uint64
	unstored int
}

// stream runs attempts at one agent instance, over any number of connections: what was asked for,
// what came of it, and what is stored. connection.go talks to the agent.
type stream struct {
	ctx      context.Context
	client   agentv1.AgentServiceClient
	settings *Options
	results  chan<- result

	mu       sync.Mutex
	id       string
	inFlight map[key]*attempt
	// abandoned attempts ended here though not at the agent.
	abandoned map[key]bool
	// received is the cursor of the last batch that came, acked the one up to which all outcomes
	// are stored, ackSent the one that the agent was told.
	received, acked, ackSent uint64
	batches                  []*batch
	unstored                 map[key]*batch
	owed                     uint64
	instance                 string
	capacity, target         uint32
	connected, draining      bool
	// plain: each attempt is a call of RunRollout, since that was asked for or the agent does not
	// offer Collect.
	plain   bool
	heardAt time.Time
	// lostAt is since when no agent was reached; zero: one was.
	lostAt time.Time

	// What is to be sent on the present connection.
	starts  []*attempt
	cancels []key
	grant   uint64
	closing bool
	wake    chan struct{}
	// hangUp ends the present connection.
	hangUp func()
}

func newStream(
	ctx context.Context, client agentv1.AgentServiceClient, settings *Options, results chan<- result,
) *stream {
	s := &stream{
		ctx: ctx, client: client, settings: settings, results: results,
		inFlight: make(map[key]*attempt),
		wake:     make(chan struct{}, 1),
		plain:    settings.CallPerRollout, connected: settings.CallPerRollout, lostAt: time.Now(),
	}
	s.forget()
	return s
}

// forget begins a new stream at whichever agent answers.
func (s *stream) forget() {
	s.id = rand.Text()
	s.received, s.acked, s.ackSent = 0, 0, 0
	s.batches, s.unstored = nil, make(map[key]*batch)
	s.abandoned = make(map[key]bool)
	s.instance = ""
	s.draining = false
}

func (s *stream) wakeSender() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// places says how many more attempts the stream takes; ready, whether it is connected.
func (s *stream) places() (free int, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := assumedPlaces
	if s.target > 0 {
		most = int(s.target)
	} else if s.capacity > 0 {
		most = int(s.capacity)
	}
	return most - len(s.inFlight), s.connected && !s.draining
}

func (s *stream) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inFlight)
}

// start asks for an attempt. It ends with exactly one result.
func (s *stream) start(one *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[one.key] = one
	if s.plain {
		one.sent = true
		go s.runPlain(one)
		return
	}
	s.starts = append(s.starts, one)
	s.wakeSender()
}

// end takes an attempt out and reports how it ended. The results' buffer has room for every attempt
// that may be in flight.
func (s *stream) end(one *attempt, rollout *rolloutv1.Rollout, err *mesherr.Error, refused bool) {
	delete(s.inFlight, one.key)
	s.results <- result{
		attempt: one, stream: s, rollout: rollout, err: err, instance: s.instance, refused: refused,
	}
}

// stored says that an attempt's outcome is where it must not be lost from, or that it is replaced.
func (s *stream) stored(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if came := s.unstored[k]; came != nil {
		delete(s.unstored, k)
		came.unstored--
		s.advance()
	}
}

func (s *stream) advance() {
	for len(s.batches) > 0 && s.batches[0].unstored == 0 {
		s.acked = s.batches[0].cursor
		s.batches = s.batches[1:]
	}
	if s.acked > s.ackSent {
		s.wakeSender()
	}
}

// welcomed takes the answer to hello: what is asked for (again), or that all was lost.
func (s *stream) welcomed(welcome *agentv1.CollectWelcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := s.instance != "" && s.instance != welcome.GetInstanceId()
	if !welcome.GetResumed() || moved {
		id := s.id
		s.lose(unavailable("the agent lost the rollout: it was restarted, or out of reach for too long"))
		s.forget()
		s.id = id // the stream that was welcomed
	}
	s.instance = welcome.GetInstanceId()
	s.capacity, s.target = welcome.GetCapacity(), 0
	s.connected, s.heardAt, s.lostAt = true, time.Now(), time.Time{}
	s.grant, s.owed, s.ackSent = 0, 0, 0
	s.starts, s.cancels = nil, nil
	for _, one := range s.inFlight {
		one.repeated = one.fold.Sequence()
		if one.repeated == 0 {
			s.starts = append(s.starts, one)
		}
	}
	for k := range s.abandoned {
		s.cancels = append(s.cancels, k)
	}
	s.wakeSender()
}

// lose ends all attempts that the agent may have heard of.
func (s *stream) lose(err *mesherr.Error) {
	for _, one := range s.inFlight {
		if one.sent {
			s.end(one, nil, err, false)
		}
	}
}

// giveUp ends everything in flight, and begins a new stream with the next connection.
func (s *stream) giveUp(err *mesherr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.inFlight {
		s.end(one, nil, err, !one.sent)
	}
	s.forget()
}

// disconnected notes that the connection broke.
func (s *stream) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected = false
	s.missed()
}

// missed notes that no agent was reached.
func (s *stream) missed() {
	if s.lostAt.IsZero() {
		s.lostAt = time.Now()
	}
}

// isOutOfReach says whether no agent was reached for longer than one is waited for.
func (s *stream) isOutOfReach() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lostAt.IsZero() && time.Since(s.lostAt) > s.settings.Patience
}

// take hands a batch's events to their attempts.
func (s *stream) take(events *agentv1.CollectEvents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
	s.owed += uint64(len(events.GetEvents()))
	if 2*s.owed >= credit {
		s.grant, s.owed = s.grant+s.owed, 0
		s.wakeSender()
	}
	if events.GetCursor() <= s.received {
		return
	}
	s.received = events.GetCursor()
	came := &batch{cursor: events.GetCursor()}
	s.batches = append(s.batches, came)
	for _, event := range events.GetEvents() {
		s.takeEvent(event, came)
	}
	s.advance()
}

func (s *stream) takeEvent(event *rolloutv1.RolloutEvent, came *batch) {
	k := key{event.GetRolloutId(), event.GetAttempt()}
	one := s.inFlight[k]
	if one == nil { // an older attempt's, for which nobody waits any more
		if isTerminal(event) {
			delete(s.abandoned, k)
		}
		return
	}
	if event.GetSequence() <= one.repeated {
		return
	}
	if err := one.fold.Add(event); err != nil {
		if !isTerminal(event) {
			s.abandon(k)
		}
		s.end(one, nil, one.lawBroken(err), false)
		return
	}
	if one.fold.Ended() {
		rollout, _ := one.fold.Finish()
		came.unstored++
		s.unstored[k] = came
		s.end(one, rollout, nil, false)
	}
}

func isTerminal(event *rolloutv1.RolloutEvent) bool {
	return event.GetCompleted() != nil || event.GetFailed() != nil
}

// abandon has the agent told that nobody waits for an attempt any more.
func (s *stream) abandon(k key) {
	s.abandoned[k] = true
	s.cancels = append(s.cancels, k)
	s.wakeSender()
}

// refuse takes starts that the agent does not take.
func (s *stream) refuse(refusal *agentv1.CollectStartRefused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
	err := mesherr.FromStatus(refusal.GetStatus())
	s.draining = s.draining || err.Reason == errorsv1.ErrorReason_ERROR_REASON_DRAINING
	for _, ref := range refusal.GetAttempts() {
		k := keyOf(ref)
		delete(s.abandoned, k)
		if one := s.inFlight[k]; one != nil {
			s.end(one, nil, err, true)
		}
	}
}

func (s *stream) load(load *agentv1.CollectLoad) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
	s.target = load.GetTarget()
}

// tick ends attempts whose time is long over, and a connection on which nothing comes although
// something must, or that has nothing more to do at an agent on its way down.
func (s *stream) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, one := range s.inFlight {
		if now.After(one.due.Add(deadlineGrace)) {
			if one.sent {
				s.abandon(k)
			}
			s.end(one, nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_DEADLINE_PASSED,
				"the rollout's deadline passed", "method", "gymmesh.agent.v1.AgentService/Collect"), false)
		}
	}
	silent := len(s.inFlight) > 0 && now.Sub(s.heardAt) > s.settings.Silence
	leaving := s.draining && len(s.inFlight) == 0
	if s.connected && s.hangUp != nil && (silent || leaving) {
		s.hangUp()
	}
	if len(s.inFlight) == 0 {
		s.heardAt = now
	}
}

// close has the stream end: what is in flight is cancelled.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for k, one := range s.inFlight {
		if one.sent {
			s.abandon(k)
		}
	}
	s.inFlight = make(map[key]*attempt)
	s.starts = nil
	s.wakeSender()
}

// startMessages are what starts the attempts that are to be started. Few together, so that a message
// stays far below what an agent must take.
func (s *stream) startMessages() []*agentv1.CollectRequest {
	const most, mostBytes = 64, 1 << 20
	var messages []*agentv1.CollectRequest
	var starts *agentv1.CollectStarts
	size := 0
	now := time.Now()
	for _, one := range s.starts {
		if s.inFlight[one.key] != one { // it ended meanwhile
			continue
		}
		one.sent = true
		if starts == nil || len(starts.GetStarts()) == most || size+one.size > mostBytes {
			starts, size = &agentv1.CollectStarts{}, 0
			messages = append(messages, &agentv1.CollectRequest{
				Message: &agentv1.CollectRequest_Starts{Starts: starts},
			})
		}
		size += one.size
		starts.Starts = append(starts.Starts, &agentv1.CollectStart{
			Request: one.request, TimeoutMs: uint64(max(one.due.Sub(now).Milliseconds(), 1)),
		})
	}
	return messages
}

// next takes what is to be sent now; last: the collector has said all.
func (s *stream) next() (messages []*agentv1.CollectRequest, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages = s.startMessages()
	if len(s.cancels) > 0 {
		cancels := &agentv1.CollectCancels{}
		for _, k := range s.cancels {
			cancels.Attempts = append(cancels.Attempts, k.ref())
		}
		messages = append(messages, &agentv1.CollectRequest{
			Message: &agentv1.CollectRequest_Cancels{Cancels: cancels},
		})
	}
	if s.grant > 0 {
		messages = append(messages, &agentv1.CollectRequest{
			Message: &agentv1.CollectRequest_Credit{Credit: &agentv1.CollectCredit{Events: s.grant}},
		})
	}
	if s.acked > s.ackSent {
		messages = append(messages, &agentv1.CollectRequest{
			Message: &agentv1.CollectRequest_Ack{Ack: &agentv1.CollectAck{Cursor: s.acked}},
		})
		s.ackSent = s.acked
	}
	s.starts, s.cancels, s.grant = nil, nil, 0
	return messages, s.closing
}
