package collect

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// testAgent is an agent that plays its rollouts by a script, at once.
type testAgent struct {
	agentv1.UnimplementedAgentServiceServer
	instance string
	// play gives a rollout's events; none: it never ends.
	play func(*agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent
	// refuse says why a start is not taken; nil: it is.
	refuse func(*agentv1.RunRolloutRequest) *mesherr.Error
	// cutAfter breaks a connection after so many batches; 0: never.
	cutAfter int

	mu       sync.Mutex
	streams  map[string]*testStream
	requests []*agentv1.RunRolloutRequest
	canceled map[key]bool
	welcomes int
	overdrawn,
	earlyAck bool
	changed *sync.Cond
}

// testStream is what an agent keeps of a stream.
type testStream struct {
	batches []*agentv1.CollectEvents
	known   map[key]bool
	acked   uint64
	// connection counts connections: an older one ends.
	connection int
}

func newTestAgent(instance string) *testAgent {
	a := &testAgent{
		instance: instance, play: completes,
		streams: make(map[string]*testStream), canceled: make(map[key]bool),
	}
	a.changed = sync.NewCond(&a.mu)
	return a
}

// serve serves at an address until the test ends or stop is called.
func (a *testAgent) serve(t *testing.T, address string) (string, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(mesh.MaxMessageBytes))
	agentv1.RegisterAgentServiceServer(server, a)
	go func() { _ = server.Serve(listener) }()
	stop := sync.OnceFunc(server.Stop)
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func (a *testAgent) Collect(calls agentv1.AgentService_CollectServer) error {
	first, err := calls.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "hello was due")
	}
	stream, connection, resumed := a.open(hello)
	err = calls.Send(&agentv1.CollectResponse{Message: &agentv1.CollectResponse_Welcome{
		Welcome: &agentv1.CollectWelcome{
			Resumed: resumed, ResumeWindowS: 60, Capacity: 10_000, InstanceId: a.instance,
			ContractVersion: "1.0",
		},
	}})
	if err != nil {
		return err
	}
	down := &connectionDown{agent: a, stream: stream, number: connection, credit: hello.GetCredit()}
	if resumed { // else it is a new stream, whose batches count from one
		down.cursor = hello.GetLastCursor()
	}
	go down.read(calls)
	return down.write(calls)
}

func (a *testAgent) open(hello *agentv1.CollectHello) (*testStream, int, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.welcomes++
	stream, found := a.streams[hello.GetStreamId()]
	if !found {
		stream = &testStream{known: make(map[key]bool)}
		a.streams[hello.GetStreamId()] = stream
	}
	stream.connection++
	a.changed.Broadcast()
	return stream, stream.connection, found || hello.GetLastCursor() == 0
}

// connectionDown is one connection of a stream.
type connectionDown struct {
	agent          *testAgent
	stream         *testStream
	number         int
	cursor, credit uint64
	refusals       []*agentv1.CollectStartRefused
	over           bool
}

func (d *connectionDown) read(calls agentv1.AgentService_CollectServer) {
	for {
		request, err := calls.Recv()
		d.agent.mu.Lock()
		if err != nil {
			d.over = true
			d.agent.changed.Broadcast()
			d.agent.mu.Unlock()
			return
		}
		d.take(request)
		d.agent.changed.Broadcast()
		d.agent.mu.Unlock()
	}
}

func (d *connectionDown) take(request *agentv1.CollectRequest) {
	for _, start := range request.GetStarts().GetStarts() {
		d.start(start.GetRequest())
	}
	for _, ref := range request.GetCancels().GetAttempts() {
		d.agent.canceled[keyOf(ref)] = true
	}
	d.credit += request.GetCredit().GetEvents()
	if ack := request.GetAck(); ack != nil {
		if ack.GetCursor() > uint64(len(d.stream.batches)) {
			d.agent.earlyAck = true
		}
		d.stream.acked = max(d.stream.acked, ack.GetCursor())
	}
}

func (d *connectionDown) start(request *agentv1.RunRolloutRequest) {
	k := key{request.GetRolloutId(), request.GetAttempt()}
	if d.stream.known[k] {
		return
	}
	d.agent.requests = append(d.agent.requests, request)
	if d.agent.refuse != nil {
		if err := d.agent.refuse(request); err != nil {
			d.refusals = append(d.refusals, &agentv1.CollectStartRefused{
				Attempts: []*agentv1.AttemptRef{k.ref()}, Status: err.Status(),
			})
			return
		}
	}
	d.stream.known[k] = true
	for _, event := range d.agent.play(request) {
		d.stream.batches = append(d.stream.batches, &agentv1.CollectEvents{
			Cursor: uint64(len(d.stream.batches) + 1), Events: []*rolloutv1.RolloutEvent{event},
		})
	}
}

func (d *connectionDown) write(calls agentv1.AgentService_CollectServer) error {
	for sent := 0; ; sent++ {
		if d.agent.cutAfter > 0 && sent >= d.agent.cutAfter {
			return status.Error(codes.Unavailable, "cut")
		}
		next := d.next()
		if next == nil {
			return nil
		}
		if err := calls.Send(next); err != nil {
			return err
		}
	}
}

// next waits for what is to be sent; nil: the connection is over.
func (d *connectionDown) next() *agentv1.CollectResponse {
	d.agent.mu.Lock()
	defer d.agent.mu.Unlock()
	for !d.over && d.stream.connection == d.number {
		if len(d.refusals) > 0 {
			refusal := d.refusals[0]
			d.refusals = d.refusals[1:]
			return &agentv1.CollectResponse{
				Message: &agentv1.CollectResponse_StartRefused{StartRefused: refusal},
			}
		}
		if d.cursor < uint64(len(d.stream.batches)) && d.credit > 0 {
			batch := d.stream.batches[d.cursor]
			d.cursor++
			d.credit--
			return &agentv1.CollectResponse{Message: &agentv1.CollectResponse_Events{Events: batch}}
		}
		d.agent.changed.Wait()
	}
	return nil
}

// await waits until something is true of the agent.
func (a *testAgent) await(condition func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !condition() {
		a.changed.Wait()
	}
}

// plainAgent offers RunRollout alone.
type plainAgent struct {
	agentv1.UnimplementedAgentServiceServer
	play func(*agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent
}

func (a *plainAgent) RunRollout(
	request *agentv1.RunRolloutRequest, calls agentv1.AgentService_RunRolloutServer,
) error {
	for _, event := range a.play(request) {
		if err := calls.Send(&agentv1.RunRolloutResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

// -- scripts ------------------------------------------------------------------------------------

func events(request *agentv1.RunRolloutRequest, kinds ...*rolloutv1.RolloutEvent) []*rolloutv1.RolloutEvent {
	for i, event := range kinds {
		event.RolloutId, event.Attempt = request.GetRolloutId(), request.GetAttempt()
		event.Sequence = uint64(i + 1)
		event.RecordTimeUnixNano = uint64(1_700_000_000_000_000_000 + i)
	}
	return kinds
}

func started() *rolloutv1.RolloutEvent {
	return &rolloutv1.RolloutEvent{Event: &rolloutv1.RolloutEvent_Started{Started: &rolloutv1.Started{}}}
}

// completes is a rollout of four events with the reward 1.
func completes(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
	reward := 1.0
	answer := &rolloutv1.ModelCallCompleted{CallId: "c1", Response: &responsesv1.Response{
		Output: []*responsesv1.Item{codec.NewMessage("assistant", "5")},
	}}
	return events(request,
		started(),
		&rolloutv1.RolloutEvent{
			Event: &rolloutv1.RolloutEvent_ModelCallCompleted{ModelCallCompleted: answer},
		},
		&rolloutv1.RolloutEvent{Event: &rolloutv1.RolloutEvent_Verified{Verified: &rolloutv1.Verified{
			Verification: &rolloutv1.Verification{
				Status: rolloutv1.VerificationStatus_VERIFICATION_STATUS_VERIFIED, Reward: &reward,
			},
		}}},
		&rolloutv1.RolloutEvent{Event: &rolloutv1.RolloutEvent_Completed{Completed: &rolloutv1.Completed{
			StopReason: rolloutv1.StopReason_STOP_REASON_MODEL_FINISHED, Events: 4,
		}}},
	)
}

// fails is a rollout that fails with an error.
func fails(request *agentv1.RunRolloutRequest, err *mesherr.Error) []*rolloutv1.RolloutEvent {
	return events(request, started(),
		&rolloutv1.RolloutEvent{Event: &rolloutv1.RolloutEvent_Failed{Failed: &rolloutv1.Failed{
			Failure: err.Failure(rolloutv1.Boundary_BOUNDARY_MODEL), Events: 2,
		}}})
}

// hangs is a rollout that begins and never ends.
func hangs(request *agentv1.RunRolloutRequest) []*rolloutv1.RolloutEvent {
	return events(request, started())
}
