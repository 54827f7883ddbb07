package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
)

const (
	backend      = "bubblewrap"
	image        = "host" // what the sandboxes' file systems are made from
	defaultTTL   = time.Hour
	longestTTL   = 24 * time.Hour
	keptOutput   = 1 << 20
	mostOutput   = 16 << 20
	mostArchive  = 32 << 20
	mostWaiting  = 64
	mostRunning  = 64 // processes of one sandbox
	repeatTime   = 10 * time.Minute
	longestStart = time.Minute
)

// service is the sandbox service.
type service struct {
	sandboxv1.UnimplementedSandboxServiceServer
	name, id string
	host     *host
	places   chan struct{}
	creating serving.Once[*sandbox]

	mu       sync.Mutex
	open     map[string]*sandbox
	waiting  int
	draining bool
}

func newService(name, id string, places int, host *host) *service {
	return &service{
		name: name, id: id, host: host, places: make(chan struct{}, places), open: make(map[string]*sandbox),
	}
}

func (s *service) GetService(
	context.Context, *sandboxv1.GetServiceRequest,
) (*sandboxv1.GetServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &sandboxv1.GetServiceResponse{
		InstanceId: s.id, ContractVersion: mesh.ContractVersion, Backend: backend,
		Images: []*sandboxv1.Image{{Name: image}}, DefaultImage: image,
		Capabilities: &sandboxv1.Capabilities{Networks: []sandboxv1.NetworkKind{sandboxv1.NetworkKind_NETWORK_KIND_NONE}},
		Limits: &sandboxv1.ServiceLimits{
			DefaultResources: &sandboxv1.Resources{}, MaxResources: &sandboxv1.Resources{},
			DefaultTtlS: uint32(defaultTTL.Seconds()), MaxTtlS: uint32(longestTTL.Seconds()),
			DefaultOutputBytes: keptOutput, MaxOutputBytes: mostOutput, MaxArchiveBytes: mostArchive,
			RepeatS: uint32(repeatTime.Seconds()), MaxWaiting: mostWaiting, MaxProcesses: mostRunning,
			StartTimeoutS: uint32(longestStart.Seconds()),
		},
		Places: uint32(cap(s.places)), Running: uint32(len(s.open)), Waiting: uint32(s.waiting),
	}, nil
}

func (s *service) reference(of *sandbox) *sandboxv1.SandboxRef {
	return &sandboxv1.SandboxRef{SandboxId: of.id, Service: s.name, InstanceId: s.id, Image: image}
}

// find gives a sandbox and the lease that was shown for it.
func (s *service) find(id string, secret []byte, what need) (*sandbox, *lease, error) {
	found, shown, err := s.check(id, secret, what)
	if err == nil {
		found.use(shown)()
	}
	return found, shown, err
}

// check is find of a call that is no use of the sandbox.
func (s *service) check(id string, secret []byte, what need) (*sandbox, *lease, error) {
	if id == "" {
		return nil, nil, missing("sandbox_id")
	}
	if len(secret) == 0 {
		return nil, nil, missing("lease")
	}
	found := s.get(id)
	if found == nil {
		return nil, nil, notFound(id, s.id)
	}
	shown, err := found.leases.find(secret, id, what)
	if err != nil {
		return nil, nil, err
	}
	return found, shown, nil
}

func (s *service) get(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.open[id]
	if found == nil {
		return nil
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.ended || !time.Now().Before(found.ownUntil()) {
		return nil
	}
	return found
}

func (s *service) AttachSandbox(
	_ context.Context, request *sandboxv1.AttachSandboxRequest,
) (*sandboxv1.AttachSandboxResponse, error) {
	found, shown, err := s.find(request.GetSandboxId(), request.GetLease(), needAny)
	if err != nil {
		return nil, err
	}
	return &sandboxv1.AttachSandboxResponse{
		Sandbox: s.info(found), Own: shown.own, Scope: shown.scope, ExpiresUnixNano: uint64(shown.until().UnixNano()),
	}, nil
}

func (s *service) info(of *sandbox) *sandboxv1.SandboxInfo {
	of.mu.Lock()
	running := 0
	for _, one := range of.processes {
		if one.ended() == nil {
			running++
		}
	}
	used := of.used
	if of.uses > 0 {
		used = time.Now()
	}
	of.mu.Unlock()
	made := &sandboxv1.SandboxInfo{
		Sandbox: s.reference(of), Resources: of.answer.GetResources(),
		Network: sandboxv1.NetworkKind_NETWORK_KIND_NONE, Workdir: of.workdir, User: boxUser,
		Labels: of.request.GetLabels(), RolloutId: of.request.GetRolloutId(),
		StartedUnixNano: uint64(of.begun.UnixNano()), ExpiresUnixNano: uint64(of.ownUntil().UnixNano()),
		Processes: uint32(running),
	}
	if !of.ends.IsZero() {
		made.EndsUnixNano = uint64(of.ends.UnixNano())
	}
	if !used.IsZero() {
		made.UsedUnixNano = uint64(used.UnixNano())
	}
	return made
}

func (s *service) EndSandbox(
	_ context.Context, request *sandboxv1.EndSandboxRequest,
) (*sandboxv1.EndSandboxResponse, error) {
	found, _, err := s.find(request.GetSandboxId(), request.GetLease(), needOwn)
	if errors.Is(err, notFound("", "")) {
		return &sandboxv1.EndSandboxResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	found.end()
	return &sandboxv1.EndSandboxResponse{}, nil
}

func (s *service) RemoveSandbox(
	_ context.Context, request *sandboxv1.RemoveSandboxRequest,
) (*sandboxv1.RemoveSandboxResponse, error) {
	if request.GetSandboxId() == "" {
		return nil, missing("sandbox_id")
	}
	if found := s.get(request.GetSandboxId()); found != nil {
		found.end()
	}
	return &sandboxv1.RemoveSandboxResponse{}, nil
}

func (s *service) ListSandboxes(
	_ context.Context, request *sandboxv1.ListSandboxesRequest,
) (*sandboxv1.ListSandboxesResponse, error) {
	if request.GetPageSize() < 0 {
		return nil, invalid("page_size", "must not be negative")
	}
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.open))
	s.mu.Unlock()
	answer := &sandboxv1.ListSandboxesResponse{}
	for _, id := range ids {
		if id <= request.GetPageToken() {
			continue
		}
		if size := int(request.GetPageSize()); size > 0 && len(answer.Sandboxes) == size {
			answer.NextPageToken = answer.Sandboxes[size-1].GetSandbox().GetSandboxId()
			break
		}
		if found := s.get(id); found != nil {
			answer.Sandboxes = append(answer.Sandboxes, s.info(found))
		}
	}
	return answer, nil
}

func (s *service) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// endAll ends what is left when the service goes down.
func (s *service) endAll() {
	s.mu.Lock()
	left := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	var ending sync.WaitGroup
	for _, one := range left {
		ending.Go(one.end)
	}
	ending.Wait()
}

// withoutLease is a request as it is compared with a repeat.
func withoutLease[T proto.Message](request T) T {
	made := proto.CloneOf(request)
	reflected := made.ProtoReflect()
	reflected.Clear(reflected.Descriptor().Fields().ByName("lease"))
	return made
}
