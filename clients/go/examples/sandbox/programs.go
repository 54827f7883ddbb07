package main

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// checkProcess refuses what a process of this service cannot have.
func checkProcess(asked *sandboxv1.ProcessSpec, where string) *mesherr.Error {
	switch {
	case asked.GetCommand() == nil:
		return missing(where + "argv")
	case asked.GetArgv() != nil && len(asked.GetArgv().GetWords()) == 0:
		return missing(where + "argv.words")
	case max(asked.GetStdoutBytes(), asked.GetStderrBytes()) > mostOutput:
		field := "stdout_bytes"
		if asked.GetStdoutBytes() <= mostOutput {
			field = "stderr_bytes"
		}
		return invalid(where+field, "is more than "+strconv.Itoa(mostOutput))
	}
	words := append(slices.Clone(asked.GetArgv().GetWords()), []byte(asked.GetShell()), []byte(asked.GetCwd()))
	for name, value := range asked.GetEnv() {
		words = append(words, []byte(name+value))
	}
	for _, word := range words {
		if bytes.IndexByte(word, 0) >= 0 {
			return invalid(where+"argv", "has a zero byte")
		}
	}
	for option, is := range map[string]bool{
		"cpu_s": asked.GetCpuS() != 0, "file_bytes": asked.GetFileBytes() != 0,
		"address_space_bytes": asked.GetAddressSpaceBytes() != 0, "open_files": asked.GetOpenFiles() != 0,
		"user": !isBoxUser(asked.GetUser()),
	} {
		if is {
			return unsupported(where + option)
		}
	}
	return nil
}

// start starts a program, with all of its standard input where it is whole.
func (b *sandbox) start(asked *sandboxv1.ProcessSpec, stdin []byte, whole bool) (*process, *mesherr.Error) {
	words := asked.GetArgv().GetWords()
	if words == nil {
		words = [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(asked.GetShell())}
	}
	given := maps.Clone(asked.GetEnv())
	if given == nil {
		given = make(map[string]string)
	}
	for _, one := range b.env {
		name, value, _ := strings.Cut(one, "=")
		if _, found := given[name]; !found {
			given[name] = value
		}
	}
	limits := [2]uint64{asked.GetStdoutBytes(), asked.GetStderrBytes()}
	for i := range limits {
		if limits[i] == 0 {
			limits[i] = keptOutput
		}
	}
	run := &order{Words: words, Env: assignments(given), Cwd: b.path(asked.GetCwd())}
	id, err := b.reserve()
	if err != nil {
		return nil, err
	}
	made, fault := b.box.startProcess(id, run, limits, asked.GetEndAtOutputLimit())
	if fault != nil {
		return nil, lost(b.id)
	}
	b.mu.Lock()
	b.processes[id] = made
	b.mu.Unlock()
	if whole {
		go made.write(context.Background(), 0, stdin, true)
	}
	if limit := time.Duration(asked.GetTimeoutMs()) * time.Millisecond; limit > 0 {
		time.AfterFunc(limit, func() {
			if made.ended() == nil {
				made.kill(sandboxv1.ExitCause_EXIT_CAUSE_TIMED_OUT)
			}
		})
	}
	return made, nil
}

// reserve gives the id of a process, where not too many run.
func (b *sandbox) reserve() (string, *mesherr.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	running := 0
	for id, one := range b.processes {
		exit := one.ended()
		if exit == nil {
			running++
		} else if time.Since(one.begun) > repeatTime+time.Duration(exit.GetDurationUs())*time.Microsecond {
			delete(b.processes, id)
		}
	}
	if running >= mostRunning {
		return "", mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LIMIT,
			"the sandbox runs as many processes as it may", "limit", strconv.Itoa(mostRunning))
	}
	b.started++
	return "p-" + strconv.Itoa(b.started), nil
}

// path makes a path of the sandbox absolute.
func (b *sandbox) path(name string) string {
	if name == "" {
		return b.workdir
	}
	if !strings.HasPrefix(name, "/") {
		return b.workdir + "/" + name
	}
	return name
}

// withProcess is a request that starts a process, ofProcess one about a process that was started.
type (
	withProcess interface {
		proto.Message
		GetRequestId() string
		GetProcess() *sandboxv1.ProcessSpec
	}
	ofProcess interface {
		GetSandboxId() string
		GetLease() []byte
		GetProcessId() string
	}
)

// begin starts a program once for each request_id.
func (s *service) begin(
	ctx context.Context, found *sandbox, once *serving.Once[*process], request withProcess,
	stdin []byte, whole bool,
) (*process, error) {
	id := request.GetRequestId()
	if id == "" {
		return nil, missing("request_id")
	}
	if request.GetProcess() == nil {
		return nil, missing("process")
	}
	if err := checkProcess(request.GetProcess(), "process."); err != nil {
		return nil, err
	}
	return once.Do(ctx, id, withoutLease(request), func() (*process, *mesherr.Error) {
		return found.start(request.GetProcess(), stdin, whole)
	}, serving.NothingWasDone)
}

func (s *service) Exec(
	request *sandboxv1.ExecRequest, stream grpc.ServerStreamingServer[sandboxv1.ExecResponse],
) error {
	found, shown, err := s.find(request.GetSandboxId(), request.GetLease(), needPrograms)
	if err != nil {
		return err
	}
	defer found.use(shown)()
	running, err := s.begin(stream.Context(), found, &found.running, request, request.GetStdin(), true)
	if err != nil {
		return err
	}
	return running.listen(stream.Context(), [2]uint64{}, func(event *sandboxv1.ProcessEvent) error {
		return stream.Send(&sandboxv1.ExecResponse{Event: event})
	})
}

func (s *service) StartProcess(
	ctx context.Context, request *sandboxv1.StartProcessRequest,
) (*sandboxv1.StartProcessResponse, error) {
	found, _, err := s.find(request.GetSandboxId(), request.GetLease(), needPrograms)
	if err != nil {
		return nil, err
	}
	running, err := s.begin(ctx, found, &found.staying, request, nil, false)
	if err != nil {
		return nil, err
	}
	return &sandboxv1.StartProcessResponse{ProcessId: running.id}, nil
}

// findProcess gives a process of a sandbox, for a lease that may run programs.
func (s *service) findProcess(request ofProcess) (*process, error) {
	found, _, err := s.find(request.GetSandboxId(), request.GetLease(), needPrograms)
	if err != nil {
		return nil, err
	}
	if request.GetProcessId() == "" {
		return nil, missing("process_id")
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if one := found.processes[request.GetProcessId()]; one != nil {
		return one, nil
	}
	return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PROCESS_NOT_FOUND,
		"no such process was started here, or its end is forgotten", "process_id", request.GetProcessId())
}

func (s *service) WriteStdin(
	ctx context.Context, request *sandboxv1.WriteStdinRequest,
) (*sandboxv1.WriteStdinResponse, error) {
	found, err := s.findProcess(request)
	if err != nil {
		return nil, err
	}
	written, err := found.write(ctx, request.GetOffset(), request.GetContent(), request.GetClose())
	if err != nil {
		return nil, err
	}
	return &sandboxv1.WriteStdinResponse{Written: written}, nil
}

const lastSignal = 64

func (s *service) SignalProcess(
	_ context.Context, request *sandboxv1.SignalProcessRequest,
) (*sandboxv1.SignalProcessResponse, error) {
	found, err := s.findProcess(request)
	if err != nil {
		return nil, err
	}
	if request.GetSignal() == 0 {
		return nil, missing("signal")
	}
	if request.GetSignal() > lastSignal {
		return nil, invalid("signal", "is not a Linux signal")
	}
	found.signal(int(request.GetSignal()), request.GetDescendants())
	return &sandboxv1.SignalProcessResponse{}, nil
}

func (s *service) WaitProcess(
	request *sandboxv1.WaitProcessRequest, stream grpc.ServerStreamingServer[sandboxv1.WaitProcessResponse],
) error {
	found, err := s.findProcess(request)
	if err != nil {
		return err
	}
	of, shown, err := s.find(request.GetSandboxId(), request.GetLease(), needPrograms)
	if err != nil {
		return err
	}
	defer of.use(shown)()
	offsets := [2]uint64{request.GetStdoutOffset(), request.GetStderrOffset()}
	return found.listen(stream.Context(), offsets, func(event *sandboxv1.ProcessEvent) error {
		return stream.Send(&sandboxv1.WaitProcessResponse{Event: event})
	})
}

func (s *service) GetProcess(
	_ context.Context, request *sandboxv1.GetProcessRequest,
) (*sandboxv1.GetProcessResponse, error) {
	found, err := s.findProcess(request)
	if err != nil {
		return nil, err
	}
	return &sandboxv1.GetProcessResponse{Exit: found.ended()}, nil
}

// What the service does not offer.

func (s *service) CallPort(
	_ context.Context, request *sandboxv1.CallPortRequest,
) (*sandboxv1.CallPortResponse, error) {
	if _, _, err := s.find(request.GetSandboxId(), request.GetLease(), needPrograms); err != nil {
		return nil, err
	}
	return nil, unsupported("ports")
}

func (s *service) SnapshotSandbox(
	_ context.Context, request *sandboxv1.SnapshotSandboxRequest,
) (*sandboxv1.SnapshotSandboxResponse, error) {
	if _, _, err := s.find(request.GetSandboxId(), request.GetLease(), needOwn); err != nil {
		return nil, err
	}
	return nil, unsupported("snapshots")
}

func (s *service) DeleteSnapshot(
	context.Context, *sandboxv1.DeleteSnapshotRequest,
) (*sandboxv1.DeleteSnapshotResponse, error) {
	return nil, unsupported("snapshots")
}

func (s *service) ForkSandbox(
	_ context.Context, request *sandboxv1.ForkSandboxRequest,
) (*sandboxv1.ForkSandboxResponse, error) {
	if _, _, err := s.find(request.GetSandboxId(), request.GetLease(), needOwn); err != nil {
		return nil, err
	}
	return nil, unsupported("forks")
}
