package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

func jobs(count int) iter.Seq[Job] {
	return func(yield func(Job) bool) {
		for i := range count {
			task := &rolloutv1.Task{TaskId: fmt.Sprint("t", i), Environment: "e"}
			if !yield(Job{Task: task, RolloutID: fmt.Sprint("run/", i)}) {
				return
			}
		}
	}
}

func dial(t *testing.T, target string, options ...grpc.DialOption) []grpc.ClientConnInterface {
	t.Helper()
	conn, err := mesh.Dial(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return []grpc.ClientConnInterface{conn}
}

// collect runs jobs to their end, within three minutes.
func collect(
	t *testing.T, agents []grpc.ClientConnInterface, jobs iter.Seq[Job], options Options,
) map[string]*Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	outcomes := make(map[string]*Outcome)
	for outcome, err := range Run(ctx, agents, jobs, options) {
		if err != nil {
			t.Fatal(err)
		}
		if outcomes[outcome.Job.RolloutID] != nil {
			t.Errorf("%s has two outcomes", outcome.Job.RolloutID)
		}
		outcomes[outcome.Job.RolloutID] = outcome
	}
	return outcomes
}

func checkCompleted(t *testing.T, outcomes map[string]*Outcome, count int, attempt uint32) {
	t.Helper()
	if len(outcomes) != count {
		t.Fatalf("%d outcomes, not %d", len(outcomes), count)
	}
	for id, outcome := range outcomes {
		if outcome.Failure != nil {
			t.Fatalf("%s: %s", id, mesherr.Describe(outcome.Failure))
		}
		if got := outcome.Rollout.GetAttempt(); got != attempt {
			t.Fatalf("%s: attempt %d, not %d", id, got, attempt)
		}
		if outcome.Rollout.GetVerified().GetVerification().GetReward() != 1 {
			t.Errorf("%s: another reward", id)
		}
	}
}

// More events than there is credit for at first: it must be granted again.
func TestEveryRolloutIsCollectedOnceAndAcknowledged(t *testing.T) {
	agent := newTestAgent("a")
	address, _ := agent.serve(t, "127.0.0.1:0")
	const count = 3000
	outcomes := collect(t, dial(t, address), jobs(count), Options{Concurrency: 100})
	checkCompleted(t, outcomes, count, 1)
	for _, stream := range agent.streams {
		if want := uint64(len(stream.batches)); stream.acked != want || want != 4*count {
			t.Errorf("%d of %d batches are acknowledged", stream.acked, want)
		}
	}
	if agent.earlyAck || len(agent.canceled) > 0 || agent.welcomes != 1 {
		t.Errorf("early: %v, cancelled: %v, connections: %d", agent.earlyAck, agent.canceled, agent.welcomes)
	}
}

func TestAnOutcomeIsAcknowledgedOnceTheNextIsAskedFor(t *testing.T) {
	agent := newTestAgent("a")
	address, _ := agent.serve(t, "127.0.0.1:0")
	yielded := 0
	for outcome, err := range Run(context.Background(), dial(t, address), jobs(20), Options{Concurrency: 1}) {
		if err != nil || outcome.Failure != nil {
			t.Fatal(err, outcome)
		}
		yielded++
		agent.mu.Lock()
		for _, stream := range agent.streams {
			// With one rollout in flight, its terminal event is in the last batch.
			if stream.acked >= uint64(4*yielded) {
				t.Errorf("batch %d is acknowledged while outcome %d is looked at", stream.acked, yielded)
			}
		}
		agent.mu.Unlock()
	}
}

func TestAConnectionThatBreaksCostsNothing(t *testing.T) {
	agent := newTestAgent("a")
	agent.cutAfter = 50
	address, _ := agent.serve(t, "127.0.0.1:0")
	outcomes := collect(t, dial(t, address), jobs(100), Options{Concurrency: 64})
	checkCompleted(t, outcomes, 100, 1)
	if agent.welcomes < 8 || len(agent.requests) != 100 {
		t.Errorf("%d connections, %d starts", agent.welcomes, len(agent.requests))
	}
}

func TestARestartedAgentHasLostItsAttempts(t *testing.T) {
	before := newTestAgent("before")
	before.play = hangs
	address, stop := before.serve(t, "127.0.0.1:0")
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		before.await(func() bool { return len(before.requests) == 10 })
		stop()
		newTestAgent("after").serve(t, address)
	}()
	outcomes := collect(t, dial(t, address), jobs(10), Options{RetryWait: 10 * time.Millisecond})
	<-restarted
	checkCompleted(t, outcomes, 10, 2)
	for _, outcome := range outcomes {
		if outcome.AgentInstanceID != "after" {
			t.Errorf("ran at %q", outcome.AgentInstanceID)
		}
	}
}

func TestWhatAnAgentThatDiedRanGoesToAnother(t *testing.T) {
	dying, other := newTestAgent("dying"), newTestAgent("other")
	dying.play = hangs
	one, stop := dying.serve(t, "127.0.0.1:0")
	two, _ := other.serve(t, "127.0.0.1:0")
	both := manual.NewBuilderWithScheme("both")
	both.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: one}, {Addr: two}}})
	agents := dial(t, "both:///agent", grpc.WithResolvers(both))
	go func() {
		dying.await(func() bool { return len(dying.requests) > 0 })
		stop()
	}()
	outcomes := collect(t, agents, jobs(100), Options{
		Streams: 4, Concurrency: 40, RetryWait: 10 * time.Millisecond,
	})
	if len(outcomes) != 100 {
		t.Fatalf("%d outcomes", len(outcomes))
	}
	for id, outcome := range outcomes {
		if outcome.Failure != nil || outcome.AgentInstanceID != "other" {
			t.Errorf("%s: %v at %q", id, outcome.Failure, outcome.AgentInstanceID)
		}
	}
}

func TestRetries(t *testing.T) {
	timeout := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_MODEL_TIMEOUT, "slow")
	invalid := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_TASK_INVALID, "no such field")
	for _, one := range []struct {
		name      string
		failure   *mesherr.Error
		failures  uint32
		completed bool
		attempts  uint32
	}{
		{"a failure that is safe to retry", timeout, 1, true, 2},
		{"no more attempts than there may be", timeout, 9, false, 3},
		{"a failure that is not", invalid, 9, false, 1},
	} {
		t.Run(one.name, func(t *testing.T) {
			agent := newTestAgent("a")
			agent.play = func(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
				if request.GetAttempt() <= one.failures {
					return fails(request, one.failure)
				}
				return completes(request)
			}
			address, _ := agent.serve(t, "127.0.0.1:0")
			outcomes := collect(t, dial(t, address), jobs(1), Options{Attempts: 3, RetryWait: time.Millisecond})
			outcome := outcomes["run/0"]
			if (outcome.Failure == nil) != one.completed || outcome.Rollout.GetAttempt() != one.attempts {
				t.Errorf("%v after %d attempts", outcome.Failure, outcome.Rollout.GetAttempt())
			}
			if outcome.Failure != nil && !errors.Is(mesherr.FromFailure(outcome.Failure), one.failure) {
				t.Errorf("%v", outcome.Failure)
			}
		})
	}
}

func TestARefusedStartIsNoAttempt(t *testing.T) {
	agent := newTestAgent("a")
	refusals := make(map[string]int)
	agent.refuse = func(request *agentv1.RunRolloutRequest) *mesherr.Error {
		if refusals[request.GetRolloutId()]++; refusals[request.GetRolloutId()] > 3 {
			return nil
		}
		full := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_QUEUE_FULL, "full")
		full.RetryAfter = 5 * time.Millisecond
		return full
	}
	address, _ := agent.serve(t, "127.0.0.1:0")
	outcomes := collect(t, dial(t, address), jobs(5), Options{Attempts: 1, RetryWait: time.Millisecond})
	checkCompleted(t, outcomes, 5, 1)
}

func TestEventsThatBreakTheStreamLawAreNoData(t *testing.T) {
	agent := newTestAgent("a")
	agent.play = func(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
		made := completes(request)
		return append(made[:1:1], made[2:]...) // a gap
	}
	address, _ := agent.serve(t, "127.0.0.1:0")
	outcomes := collect(t, dial(t, address), jobs(1), Options{Attempts: 1})
	failure := outcomes["run/0"].Failure
	if mesherr.FromFailure(failure).Reason != errorsv1.ErrorReason_ERROR_REASON_CONTRACT_VIOLATED {
		t.Fatalf("%v", failure)
	}
	agent.await(func() bool { return agent.canceled[key{"run/0", 1}] })
}

func TestAnAgentWithoutCollect(t *testing.T) {
	agent := &plainAgent{play: func(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
		if request.GetRolloutId() == "run/7" {
			return completes(request)[:3] // breaks off
		}
		return completes(request)
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	agentv1.RegisterAgentServiceServer(server, agent)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	agents := dial(t, listener.Addr().String())
	outcomes := collect(t, agents, jobs(20), Options{RetryWait: time.Millisecond})
	broken := outcomes["run/7"]
	delete(outcomes, "run/7")
	checkCompleted(t, outcomes, 19, 1)
	if broken.Failure == nil || broken.Rollout.GetOutcome() != nil {
		t.Errorf("a stream that broke off is %v", broken)
	}
}

func TestAConnectionOnWhichNothingComesIsTakenForDead(t *testing.T) {
	agent := newTestAgent("a")
	agent.play = func(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
		if agent.welcomes == 1 {
			return nil // the first connection stays silent
		}
		return completes(request)
	}
	address, _ := agent.serve(t, "127.0.0.1:0")
	go func() {
		agent.await(func() bool { return agent.welcomes >= 2 })
		agent.mu.Lock()
		defer agent.mu.Unlock()
		for _, stream := range agent.streams { // the agent wakes up
			clear(stream.known)
		}
	}()
	options := Options{Silence: 50 * time.Millisecond, Attempts: 1}
	outcomes := collect(t, dial(t, address), jobs(1), options)
	checkCompleted(t, outcomes, 1, 1)
}

func TestAnAgentThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	for _, options := range []Options{{}, {CallPerRollout: true}} {
		checkUnavailable(t, address, options)
	}
}

func TestAnAgentThatSpeaksTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	for _, options := range []Options{{}, {CallPerRollout: true}} {
		for _, outcome := range checkUnavailable(t, server.Listener.Addr().String(), options) {
			if said := mesherr.Describe(outcome.Failure); !strings.Contains(said, "does it use TLS") {
				t.Error(said)
			}
		}
	}
}

// checkUnavailable collects where no agent answers. Attempts and their deadline are the usual ones,
// much longer than a test may take: Patience alone ends the rollouts.
func checkUnavailable(t *testing.T, address string, options Options) map[string]*Outcome {
	t.Helper()
	options.Patience, options.RetryWait = 50*time.Millisecond, 20*time.Millisecond
	outcomes := collect(t, dial(t, address), jobs(3), options)
	if len(outcomes) != 3 {
		t.Fatalf("%d outcomes", len(outcomes))
	}
	for _, outcome := range outcomes {
		got := mesherr.FromFailure(outcome.Failure)
		if got.Reason != errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE ||
			got.Boundary != rolloutv1.Boundary_BOUNDARY_AGENT {
			t.Errorf("%v", outcome.Failure)
		}
	}
	return outcomes
}

func TestWhatIsInFlightIsCancelledWhenTheContextEnds(t *testing.T) {
	agent := newTestAgent("a")
	agent.play = hangs
	address, _ := agent.serve(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		agent.await(func() bool { return len(agent.requests) == 5 })
		cancel()
	}()
	for outcome, err := range Run(ctx, dial(t, address), jobs(5), Options{}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", outcome, err)
		}
	}
	agent.await(func() bool { return len(agent.canceled) == 5 })
}

func TestRepeatsHaveSeedsOfTheirOwn(t *testing.T) {
	agent := newTestAgent("a")
	address, _ := agent.serve(t, "127.0.0.1:0")
	task := &rolloutv1.Task{TaskId: "t", Environment: "e", Seed: proto.Int64(7)}
	repeats := func(yield func(Job) bool) {
		_ = yield(Job{Task: task, RolloutID: "r/0"}) && yield(Job{Task: task, RolloutID: "r/1", RepeatIndex: 1})
	}
	outcomes := collect(t, dial(t, address), repeats, Options{Concurrency: 1})
	checkCompleted(t, outcomes, 2, 1)
	for i, want := range []int64{7, 1_000_010} {
		if got := agent.requests[i].GetTask().GetSeed(); got != want {
			t.Errorf("repeat %d has the seed %d", i, got)
		}
	}
	if task.GetSeed() != 7 || outcomes["r/1"].Rollout.GetRepeatIndex() != 1 {
		t.Error("the task was changed, or the repeat is lost")
	}
}

func TestAnIDThatIsInFlightAlready(t *testing.T) {
	agent := newTestAgent("a")
	address, _ := agent.serve(t, "127.0.0.1:0")
	task := &rolloutv1.Task{TaskId: "t", Environment: "e"}
	twice := slices.Values([]Job{{Task: task, RolloutID: "r"}, {Task: task, RolloutID: "r", RepeatIndex: 1}})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	completed, refused := 0, 0
	for outcome, err := range Run(ctx, dial(t, address), twice, Options{}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case outcome.Failure == nil:
			completed++
		case mesherr.FromFailure(outcome.Failure).Reason == errorsv1.ErrorReason_ERROR_REASON_ROLLOUT_EXISTS:
			refused++
		}
	}
	if completed != 1 || refused != 1 {
		t.Errorf("%d completed, %d refused", completed, refused)
	}
}

// Large tasks travel in messages of their own, and one that fits no message fails by itself.
func TestLargeTasks(t *testing.T) {
	agent := newTestAgent("a")
	address, _ := agent.serve(t, "127.0.0.1:0")
	large := func(yield func(Job) bool) {
		for i, size := range []int{mesh.MaxMessageBytes - 1000, 30 << 20, 30 << 20, 30 << 20, mesh.MaxMessageBytes, 1} {
			id := fmt.Sprint(i)
			task := &rolloutv1.Task{TaskId: id, PayloadJson: make([]byte, size)}
			if !yield(Job{Task: task, RolloutID: id}) {
				return
			}
		}
	}
	outcomes := collect(t, dial(t, address), large, Options{})
	failure := outcomes["4"].Failure
	if failure == nil || mesherr.FromFailure(failure).Reason != errorsv1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE {
		t.Errorf("%v", failure)
	}
	delete(outcomes, "4")
	checkCompleted(t, outcomes, 5, 1)
}
