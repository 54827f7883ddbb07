package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	discoveryv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/discovery/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	runv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/run/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// serve serves what register adds, and gives a connection to it.
func serve(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(MaxMessageBytes), grpc.MaxSendMsgSize(MaxMessageBytes))
	register(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := Dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// runServer has three runs, a page each, for callers with the token.
type runServer struct {
	runv1.UnimplementedRunServiceServer
	commands []string
}

func authorise(ctx context.Context) error {
	said, _ := metadata.FromIncomingContext(ctx)
	if got := said.Get("authorization"); len(got) != 1 || got[0] != "Bearer secret" {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_CREDENTIAL_INVALID, "no token")
	}
	if _, found := ctx.Deadline(); !found {
		return errors.New("a call without a deadline")
	}
	return nil
}

func (s *runServer) ListRuns(ctx context.Context, request *runv1.ListRunsRequest) (*runv1.ListRunsResponse, error) {
	next := request.GetPageToken() + "x"
	id := fmt.Sprint("run-", len(next))
	if len(next) == 3 {
		next = ""
	}
	return &runv1.ListRunsResponse{Runs: []*runv1.Run{{RunId: id}}, NextPageToken: next}, authorise(ctx)
}

func (s *runServer) GetRun(ctx context.Context, request *runv1.GetRunRequest) (*runv1.GetRunResponse, error) {
	if err := authorise(ctx); err != nil {
		return nil, err
	}
	if request.GetRunId() != "run-1" {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, "not here")
	}
	// Larger than what gRPC takes unless it is told otherwise.
	return &runv1.GetRunResponse{Run: &runv1.Run{RunId: "run-1", Output: strings.Repeat("x", 8<<20)}}, nil
}

func (s *runServer) ControlRun(ctx context.Context, request *runv1.ControlRunRequest) (*runv1.ControlRunResponse, error) {
	s.commands = append(s.commands, strings.TrimPrefix(fmt.Sprintf("%T", request.GetCommand()), "*runv1.ControlRunRequest_"))
	run := &runv1.Run{RunId: request.GetRunId(), Concurrency: request.GetTune().GetConcurrency()}
	return &runv1.ControlRunResponse{Run: run}, authorise(ctx)
}

func (s *runServer) StreamGroups(
	request *runv1.StreamGroupsRequest, groups runv1.RunService_StreamGroupsServer,
) error {
	for cursor := request.GetAfterCursor() + 1; cursor <= 3; cursor++ {
		if err := groups.Send(&runv1.StreamGroupsResponse{Cursor: cursor}); err != nil {
			return err
		}
	}
	if request.GetRunId() == "broken" {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_DRAINING, "going down")
	}
	return nil
}

func TestRuns(t *testing.T) {
	server := &runServer{}
	conn := serve(t, func(one *grpc.Server) { runv1.RegisterRunServiceServer(one, server) })
	ctx := t.Context()
	runs := NewRuns(conn, "secret")
	var ids []string
	for run, err := range runs.List(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.GetRunId())
	}
	if fmt.Sprint(ids) != "[run-1 run-2 run-3]" {
		t.Errorf("%v", ids)
	}
	if run, err := runs.Get(ctx, "run-1"); err != nil || len(run.GetOutput()) != 8<<20 {
		t.Errorf("%v", err)
	}
	for _, command := range []func(context.Context, string) (*runv1.Run, error){
		runs.Pause, runs.Resume, runs.Drain, runs.Cancel,
		func(ctx context.Context, id string) (*runv1.Run, error) { return runs.Tune(ctx, id, 7) },
		func(ctx context.Context, id string) (*runv1.Run, error) { return runs.CancelGroup(ctx, id, "t") },
	} {
		if run, err := command(ctx, "run-1"); err != nil || run.GetRunId() != "run-1" {
			t.Errorf("%v, %v", run, err)
		}
	}
	if got := fmt.Sprint(server.commands); got != "[Pause Resume Drain Cancel Tune CancelGroup]" {
		t.Error(got)
	}
}

func TestRunErrorsAreTyped(t *testing.T) {
	conn := serve(t, func(one *grpc.Server) { runv1.RegisterRunServiceServer(one, &runServer{}) })
	for token, want := range map[string]errorsv1.ErrorReason{
		"secret": errorsv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND,
		"wrong":  errorsv1.ErrorReason_ERROR_REASON_CREDENTIAL_INVALID,
	} {
		if _, err := NewRuns(conn, token).Get(t.Context(), "none"); !errors.Is(err, mesherr.New(want, "")) {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestGroups(t *testing.T) {
	conn := serve(t, func(one *grpc.Server) { runv1.RegisterRunServiceServer(one, &runServer{}) })
	for id, want := range map[string]string{"run-1": "[2 3]", "broken": "[2 3 DRAINING: going down]"} {
		var got []any
		request := &runv1.StreamGroupsRequest{RunId: id, AfterCursor: 1}
		for group, err := range NewRuns(conn, "secret").Groups(t.Context(), request) {
			if err != nil {
				got = append(got, err)
			} else {
				got = append(got, group.GetCursor())
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v", id, got)
		}
	}
}

// registry keeps one lease, and loses it when it is told to.
type registry struct {
	discoveryv1.UnimplementedDiscoveryServiceServer
	mu                  sync.Mutex
	lease               string
	registered, renewed int
	changed             chan struct{}
}

func (r *registry) note() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *registry) Register(
	_ context.Context, request *discoveryv1.RegisterRequest,
) (*discoveryv1.RegisterResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.note()
	r.registered++
	if r.registered == 1 {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_DRAINING, "later")
	}
	r.lease = fmt.Sprint(request.GetInstance().GetId(), r.registered)
	return &discoveryv1.RegisterResponse{LeaseId: r.lease}, nil // no time at all: renewed at once
}

func (r *registry) Renew(
	_ context.Context, request *discoveryv1.RenewRequest,
) (*discoveryv1.RenewResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.note()
	if request.GetLeaseId() != r.lease {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_LEASE_NOT_FOUND, "gone")
	}
	r.renewed++
	return &discoveryv1.RenewResponse{}, nil
}

func (r *registry) Deregister(
	_ context.Context, request *discoveryv1.DeregisterRequest,
) (*discoveryv1.DeregisterResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if request.GetLeaseId() == r.lease {
		r.lease = ""
	}
	return &discoveryv1.DeregisterResponse{}, nil
}

func (r *registry) await(t *testing.T, condition func() bool) {
	t.Helper()
	end := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		held := condition()
		r.mu.Unlock()
		if held {
			return
		}
		select {
		case <-r.changed:
		case <-end:
			t.Fatal("nothing came of it")
		}
	}
}

func TestARegistrationIsRenewedReplacedAndGivenBack(t *testing.T) {
	one := &registry{changed: make(chan struct{}, 1)}
	conn := serve(t, func(server *grpc.Server) { discoveryv1.RegisterDiscoveryServiceServer(server, one) })
	registration := NewRegistration(conn, &discoveryv1.Instance{Id: "i"})
	refused := 0
	registration.OnError = func(error) { refused++ }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		registration.Keep(ctx)
	}()
	one.await(t, func() bool { return one.renewed >= 2 })
	one.mu.Lock()
	one.lease = "" // it ran out
	one.mu.Unlock()
	one.await(t, func() bool { return one.registered == 3 && one.renewed >= 3 })
	cancel()
	<-ended
	if one.lease != "" || refused != 1 {
		t.Errorf("the lease %q is still there, %d calls failed", one.lease, refused)
	}
}

func TestCredentialsAreCheckedBeforeTheyAreUsed(t *testing.T) {
	folder := t.TempDir()
	token := filepath.Join(folder, "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		given  Credentials
		target string
		want   string
	}{
		{Credentials{TokenFile: token}, "agent.example:9401", "a token needs TLS"},
		{Credentials{Certificate: token, Key: token}, "127.0.0.1:1", "needs the authority"},
		{Credentials{Authority: token}, "127.0.0.1:1", "holds no certificate"},
		{Credentials{Authority: filepath.Join(folder, "none")}, "127.0.0.1:1", "none"},
		{Credentials{TokenFile: token}, "127.0.0.1:1", ""},
		{Credentials{TokenFile: token}, "unix:/run/agent", ""},
		{Credentials{TokenFile: token}, "dns:///localhost:9401", ""},
		{Credentials{}, "agent.example:9401", ""},
	} {
		_, err := one.given.DialOptions(one.target)
		if got := fmt.Sprint(err); one.want == "" && err != nil || !strings.Contains(got, one.want) {
			t.Errorf("%+v to %s: %v, want %q", one.given, one.target, err, one.want)
		}
	}
}
