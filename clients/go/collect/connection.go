package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
	"github.com/gymmesh/gymmesh/clients/go/rollouts"
)

const (
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second
	helloWait   = 10 * time.Second
	// A connection is kept as long as it is needed; after a week it is replaced.
	longestConnection = 7 * 24 * time.Hour
)

// run keeps the stream connected until its context ends or it is closed.
func (s *stream) run() {
	ctx := s.ctx
	lost := time.Now()
	wait := firstWait
	for ctx.Err() == nil {
		welcomed, err := s.converse(ctx)
		s.disconnected()
		if s.isClosing() || s.goPlain(err) {
			return
		}
		if welcomed {
			lost, wait = time.Now(), firstWait
		}
		if isFinal(err) || time.Since(lost) > s.settings.Patience {
			s.giveUp(err)
			lost = time.Now()
		}
		sleep(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, longestWait)
	}
}

func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *stream) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// isFinal says whether connecting again with the same stream does not help.
func isFinal(err *mesherr.Error) bool {
	switch err.Reason {
	case errorsv1.ErrorReason_ERROR_REASON_CONTRACT_MISMATCH,
		errorsv1.ErrorReason_ERROR_REASON_CONTRACT_VIOLATED,
		errorsv1.ErrorReason_ERROR_REASON_DRAINING,
		errorsv1.ErrorReason_ERROR_REASON_CREDENTIAL_INVALID,
		errorsv1.ErrorReason_ERROR_REASON_NOT_PERMITTED,
		errorsv1.ErrorReason_ERROR_REASON_REQUIRED_FIELD_MISSING,
		errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID,
		errorsv1.ErrorReason_ERROR_REASON_CALLER_CANCELLED:
		return true
	default:
		return false
	}
}

// converse holds one connection, and says whether it was welcomed and why it ended.
func (s *stream) converse(ctx context.Context) (bool, *mesherr.Error) {
	ctx, cancel := context.WithTimeout(ctx, longestConnection)
	defer cancel()
	calls, err := s.client.Collect(ctx)
	if err != nil {
		return false, mesherr.FromError(err)
	}
	if fault := s.hello(calls, cancel); fault != nil {
		return false, fault
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.send(ctx, calls)
	}()
	fault := s.receive(calls)
	cancel()
	<-sent
	return true, fault
}

// hello opens the connection. cancel ends it, then or later.
func (s *stream) hello(calls agentv1.AgentService_CollectClient, cancel func()) *mesherr.Error {
	s.mu.Lock()
	s.hangUp = cancel
	hello := &agentv1.CollectHello{
		StreamId: s.id, LastCursor: s.received, Credit: credit, ContractVersion: mesh.ContractVersion,
	}
	s.mu.Unlock()
	timer := time.AfterFunc(helloWait, cancel)
	defer timer.Stop()
	// What Send says is io.EOF; Recv knows why.
	_ = calls.Send(&agentv1.CollectRequest{Message: &agentv1.CollectRequest_Hello{Hello: hello}})
	first, err := calls.Recv()
	if err != nil {
		return endOf(err)
	}
	welcome := first.GetWelcome()
	if welcome == nil {
		return violated("the agent's first message on Collect is not a welcome")
	}
	if err := checkContract(welcome.GetContractVersion()); err != nil {
		return err
	}
	s.welcomed(welcome)
	return nil
}

func checkContract(theirs string) *mesherr.Error {
	major, _, _ := strings.Cut(theirs, ".")
	ours, _, _ := strings.Cut(mesh.ContractVersion, ".")
	if theirs == "" || major == ours {
		return nil
	}
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CONTRACT_MISMATCH,
		fmt.Sprintf("the agent speaks contract version %q and this client %s", theirs, mesh.ContractVersion),
		"ours", mesh.ContractVersion, "theirs", theirs)
}

func endOf(err error) *mesherr.Error {
	if errors.Is(err, io.EOF) {
		return unavailable("the agent ended the stream")
	}
	return mesherr.FromError(err)
}

func (s *stream) receive(calls agentv1.AgentService_CollectClient) *mesherr.Error {
	for {
		response, err := calls.Recv()
		if err != nil {
			return endOf(err)
		}
		switch message := response.GetMessage().(type) {
		case *agentv1.CollectResponse_Events:
			s.take(message.Events)
		case *agentv1.CollectResponse_StartRefused:
			s.refuse(message.StartRefused)
		case *agentv1.CollectResponse_Load:
			s.load(message.Load)
		default:
			return violated("events, start_refused or load was due")
		}
	}
}

// send sends what there is to send until the connection or the stream ends.
func (s *stream) send(ctx context.Context, calls agentv1.AgentService_CollectClient) {
	for {
		messages, last := s.next()
		for _, message := range messages {
			if calls.Send(message) != nil {
				return // receive learns why
			}
		}
		if last {
			_ = calls.CloseSend()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// goPlain turns to RunRollout, at an agent that does not offer Collect.
func (s *stream) goPlain(err *mesherr.Error) bool {
	if err.Reason != errorsv1.ErrorReason_ERROR_REASON_NOT_OFFERED {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plain, s.connected, s.starts, s.lostAt = true, true, nil, time.Time{}
	for _, one := range s.inFlight {
		one.sent = true
		go s.runPlain(one)
	}
	return true
}

// runPlain runs one attempt by a call of its own.
func (s *stream) runPlain(one *attempt) {
	ctx, cancel := context.WithDeadline(s.ctx, one.due)
	defer cancel()
	calls, err := s.client.RunRollout(ctx, one.request)
	for err == nil {
		var response *agentv1.RunRolloutResponse
		if response, err = calls.Recv(); err == nil {
			err = one.fold.Add(response.GetEvent())
		}
		if !s.isIn(one) {
			return
		}
	}
	rollout, violation := one.fold.Finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[one.key] != one {
		return
	}
	var fault *mesherr.Error
	var broken *rollouts.StreamViolation
	switch {
	case errors.As(err, &broken):
		fault = one.lawBroken(err)
	case violation == nil: // the outcome came; how the call closed after it is of no account
	case errors.Is(err, io.EOF):
		fault = one.lawBroken(violation)
	default:
		fault = mesherr.FromError(err)
	}
	if fault != nil {
		rollout = nil
	}
	refused := fault != nil && one.fold.Sequence() == 0
	if refused && fault.Reason == errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE {
		s.missed()
	} else {
		s.lostAt = time.Time{}
	}
	s.end(one, rollout, fault, refused)
}

func (s *stream) isIn(one *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight[one.key] == one
}
