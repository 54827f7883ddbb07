package main

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// testAgent completes every rollout at once, but for tasks called `fails`. It resumes nothing.
type testAgent struct {
	agentv1.UnimplementedAgentServiceServer
	instance string
}

// serve serves at a port of the system's choice until the test ends.
func (a *testAgent) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	agentv1.RegisterAgentServiceServer(server, a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func (a *testAgent) GetAgent(
	context.Context, *agentv1.GetAgentRequest,
) (*agentv1.GetAgentResponse, error) {
	return &agentv1.GetAgentResponse{
		Name: "tool_loop", Collect: true, InstanceId: a.instance, DefaultEnvironment: "shop",
	}, nil
}

func (a *testAgent) Collect(calls agentv1.AgentService_CollectServer) error {
	first, err := calls.Recv()
	if err != nil {
		return err
	}
	welcome := &agentv1.CollectWelcome{
		Resumed: first.GetHello().GetLastCursor() == 0, InstanceId: a.instance, Capacity: 1000,
	}
	message := &agentv1.CollectResponse{Message: &agentv1.CollectResponse_Welcome{Welcome: welcome}}
	for cursor := uint64(0); ; {
		if err := calls.Send(message); err != nil {
			return err
		}
		batch := &agentv1.CollectEvents{}
		for len(batch.Events) == 0 {
			request, err := calls.Recv()
			if err != nil {
				return nil
			}
			for _, start := range request.GetStarts().GetStarts() {
				batch.Events = append(batch.Events, a.events(start.GetRequest())...)
			}
		}
		cursor++
		batch.Cursor = cursor
		message = &agentv1.CollectResponse{Message: &agentv1.CollectResponse_Events{Events: batch}}
	}
}

func (a *testAgent) events(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
	reward := 1.0
	verdict := &rolloutv1.Verification{
		Status: rolloutv1.VerificationStatus_VERIFICATION_STATUS_VERIFIED, Reward: &reward,
	}
	made := []*rolloutv1.RolloutEvent{
		{Event: &rolloutv1.RolloutEvent_Started{Started: &rolloutv1.Started{AgentInstanceId: a.instance}}},
		{Event: &rolloutv1.RolloutEvent_Verified{Verified: &rolloutv1.Verified{Verification: verdict}}},
		{Event: &rolloutv1.RolloutEvent_Completed{Completed: &rolloutv1.Completed{
			StopReason: rolloutv1.StopReason_STOP_REASON_MODEL_FINISHED, Events: 3,
		}}},
	}
	if request.GetTask().GetTaskId() == "fails" {
		fault := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_ENVIRONMENT_FAULT, "broken")
		failure := fault.Failure(rolloutv1.Boundary_BOUNDARY_RESOURCE)
		failure.RetrySafe = false
		made = append(made[:1], &rolloutv1.RolloutEvent{
			Event: &rolloutv1.RolloutEvent_Failed{Failed: &rolloutv1.Failed{Failure: failure, Events: 2}},
		})
	}
	if request.GetTask().GetTaskId() == "unwritable" {
		verdict.EvidenceJson = []byte(`{"score": NaN}`)
	}
	for i, event := range made {
		event.RolloutId, event.Attempt = request.GetRolloutId(), request.GetAttempt()
		event.Sequence = uint64(i + 1)
	}
	return made
}
