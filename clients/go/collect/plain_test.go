package collect

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// endingAgent offers RunRollout alone, and ends its calls as it likes.
type endingAgent struct {
	agentv1.UnimplementedAgentServiceServer
	play func(*agentv1.RunRolloutRequest) ([]*rolloutv1.RolloutEvent, error)
}

func (a *endingAgent) RunRollout(
	request *agentv1.RunRolloutRequest, calls agentv1.AgentService_RunRolloutServer,
) error {
	made, ending := a.play(request)
	for _, event := range made {
		if err := calls.Send(&agentv1.RunRolloutResponse{Event: event}); err != nil {
			return err
		}
	}
	return ending
}

func TestHowACallEnds(t *testing.T) {
	fault := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CONTRACT_MISMATCH, "no")
	for _, one := range []struct {
		name    string
		events  int
		ending  error
		attempt uint32
		failed  errorsv1.ErrorReason
	}{
		{"an error after the outcome is of no account", 4, fault, 1, 0},
		{"a call without an end is tried again", 3, nil, 2, 0},
		{"a call that broke after it had begun is tried again", 2, fault, 2, 0},
		{"one that was refused is not", 0, fault, 1, fault.Reason},
	} {
		t.Run(one.name, func(t *testing.T) {
			agent := &endingAgent{}
			agent.play = func(request *agentv1.RunRolloutRequest) ([]*rolloutv1.RolloutEvent, error) {
				if request.GetAttempt() == 1 {
					return completes(request)[:one.events], one.ending
				}
				return completes(request), nil
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			agentv1.RegisterAgentServiceServer(server, agent)
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			options := Options{RetryWait: time.Nanosecond, CallPerRollout: true, Concurrency: -1}
			outcomes := collect(t, dial(t, listener.Addr().String()), jobs(1), options)
			outcome := outcomes["run/0"]
			if got := mesherr.FromFailure(outcome.Failure).Reason; outcome.Failure != nil && got != one.failed {
				t.Fatalf("failed with %v", outcome.Failure)
			}
			if (outcome.Failure == nil) != (one.failed == 0) || outcome.Rollout.GetAttempt() != one.attempt {
				t.Errorf("attempt %d: %v", outcome.Rollout.GetAttempt(), outcome.Failure)
			}
		})
	}
}

func TestAFailureSaysWhichRuleTheEventsBroke(t *testing.T) {
	agent := newTestAgent("a")
	agent.play = func(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
		made := completes(request)
		return append(made[:1:1], made[2:]...) // a gap
	}
	address, _ := agent.serve(t, "127.0.0.1:0")
	task := &rolloutv1.Task{TaskId: "t", Environment: "e", Agent: "solver"}
	one := func(yield func(Job) bool) { yield(Job{Task: task, RolloutID: "run/0"}) }
	failure := collect(t, dial(t, address), one, Options{})["run/0"].Failure
	if rule := mesherr.FromFailure(failure).Metadata["rule"]; rule != "sequence" {
		t.Errorf("the rule is %q", rule)
	}
	if failure.GetRetrySafe() || failure.GetComponent() != "solver" {
		t.Errorf("%v", failure)
	}
}
