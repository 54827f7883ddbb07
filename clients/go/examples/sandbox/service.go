package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
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

// sandbox is one that runs.
type sandbox struct {
	id      string
	request *sandboxv1.CreateSandboxRequest
	answer  *sandboxv1.CreateSandboxResponse
	box     *box
	workdir string
	env     []string
	begun   time.Time
	ends    time.Time // zero: never
	own     *lease
	leases  leases
	running serving.Once[*process] // Exec's
	staying serving.Once[*process] // StartProcess's
	letGo   func()
	done    chan struct{} // closed once nothing of it is left

	mu        sync.Mutex
	processes map[string]*process
	started   int // processes so far
	archives  map[string]*archive
	timer     *time.Timer
	ended     bool
	uses      int       // streams that run with another lease than the own one
	used      time.Time // when one was used last; zero: never
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

func (s *service) CreateSandbox(
	ctx context.Context, request *sandboxv1.CreateSandboxRequest,
) (*sandboxv1.CreateSandboxResponse, error) {
	if request.GetRequestId() == "" {
		return nil, missing("request_id")
	}
	if err := checkCreate(request); err != nil {
		return nil, err
	}
	due, hasDue := ctx.Deadline()
	made, err := s.creating.Do(ctx, request.GetRequestId(), request, func() (*sandbox, *mesherr.Error) {
		wait := context.Background()
		if hasDue {
			var cancel context.CancelFunc
			wait, cancel = context.WithDeadline(wait, due)
			defer cancel()
		}
		return s.create(wait, request)
	}, func(*mesherr.Error) bool { return true })
	if err != nil {
		return nil, err
	}
	return made.answer, nil
}

// checkCreate refuses what a sandbox of this service cannot have.
func checkCreate(request *sandboxv1.CreateSandboxRequest) *mesherr.Error {
	resources := request.GetResources()
	for option, asked := range map[string]bool{
		"build":                  request.GetBuild() != nil,
		"resources.cpu_millis":   resources.GetCpuMillis() != 0,
		"resources.memory_bytes": resources.GetMemoryBytes() != 0,
		"resources.pids":         resources.GetPids() != 0,
		"resources.disk_bytes":   resources.GetDiskBytes() != 0,
		"network.relay":          request.GetNetwork().GetRelay() != nil,
		"network.hosts":          request.GetNetwork().GetHosts() != nil,
		"network.open":           request.GetNetwork().GetOpen() != nil,
		"user":                   !isBoxUser(request.GetUser()),
	} {
		if asked {
			return unsupported(option)
		}
	}
	if seconds(request.GetTtlS()) > longestTTL {
		return invalid("ttl_s", "is more than "+longestTTL.String())
	}
	if name := request.GetImage(); name != "" && name != image {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
			"the service has no such image", "image", name)
	}
	if request.GetImageDigest() != "" {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_IMAGE_FAILED,
			"the image has no digest", "image", image, "cause", "no digest")
	}
	if request.GetProcess() != nil {
		return checkProcess(request.GetProcess(), "process.")
	}
	return nil
}

func (s *service) create(
	ctx context.Context, request *sandboxv1.CreateSandboxRequest,
) (*sandbox, *mesherr.Error) {
	if err := s.takePlace(ctx); err != nil {
		return nil, err
	}
	made := &sandbox{
		id: "box-" + strings.ToLower(rand.Text()[:16]), request: request, begun: time.Now(),
		processes: make(map[string]*process), archives: make(map[string]*archive), done: make(chan struct{}),
	}
	made.letGo = sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.open, made.id)
		s.mu.Unlock()
		s.creating.Forget(request.GetRequestId())
		<-s.places
	})
	if err := s.fill(made); err != nil {
		made.end()
		return nil, mesherr.FromError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		go made.end()
		return nil, draining()
	}
	s.open[made.id] = made
	go func() { // it ends with its bubblewrap, too
		<-made.box.lost
		made.end()
	}()
	return made, nil
}

// takePlace waits for a place, while not too many others do.
func (s *service) takePlace(ctx context.Context) *mesherr.Error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return draining()
	}
	if s.waiting >= mostWaiting {
		s.mu.Unlock()
		return s.full()
	}
	s.waiting++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
	select {
	case s.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.full()
	}
}

func (s *service) full() *mesherr.Error {
	err := mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LIMIT,
		"all places are taken", "limit", strconv.Itoa(cap(s.places)))
	err.RetryAfter = time.Second
	return err
}

// fill starts what a sandbox consists of.
func (s *service) fill(made *sandbox) error {
	request := made.request
	var err error
	if made.box, err = s.host.start(made.id); err != nil {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_IMAGE_FAILED, err.Error(),
			"image", image, "cause", "bubblewrap")
	}
	made.workdir = path.Clean("/" + request.GetWorkdir())
	if request.GetWorkdir() == "" {
		made.workdir = boxHome
	}
	given := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": boxHome, "USER": boxUser, "LANG": "C.UTF-8",
	}
	maps.Copy(given, request.GetEnv())
	made.env = assignments(given)
	lasts := defaultTTL
	if asked := seconds(request.GetTtlS()); asked > 0 {
		lasts = asked
	}
	if life := seconds(request.GetResources().GetLifeS()); life > 0 {
		made.ends = made.begun.Add(life)
	}
	expires := time.Now().Add(lasts)
	if !made.ends.IsZero() && expires.After(made.ends) {
		expires = made.ends
	}
	made.own = made.leases.add(&lease{own: true, given: lasts, expires: expires})
	operate := made.leases.add(&lease{given: lasts, expires: expires, parent: made.own})
	made.answer = &sandboxv1.CreateSandboxResponse{
		OwnLease: []byte(made.own.secret), User: boxUser,
		Resources: &sandboxv1.Resources{LifeS: request.GetResources().GetLifeS()},
		Grant:     s.grant(made, operate, ""),
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestStart)
	defer cancel()
	write := &sandboxv1.WriteFilesRequest{Files: request.GetFiles()}
	if err := made.box.call(ctx, &order{Call: "MakeWorkdir", Workdir: made.workdir}, write, nil); err != nil {
		return err
	}
	if request.GetProcess() != nil {
		started, err := made.start(request.GetProcess(), nil, false)
		if err != nil {
			return err
		}
		made.answer.ProcessId = started.id
	}
	made.mu.Lock()
	defer made.mu.Unlock()
	made.timer = time.AfterFunc(time.Until(expires), made.expire)
	return nil
}

func (s *service) grant(of *sandbox, one *lease, role string) *sandboxv1.SandboxGrant {
	return &sandboxv1.SandboxGrant{
		Sandbox: s.reference(of), Lease: []byte(one.secret), Role: role,
		ExpiresUnixNano: uint64(one.until().UnixNano()),
	}
}

func (s *service) reference(of *sandbox) *sandboxv1.SandboxRef {
	return &sandboxv1.SandboxRef{SandboxId: of.id, Service: s.name, InstanceId: s.id, Image: image}
}

// expire ends the sandbox where its own lease was not renewed.
func (b *sandbox) expire() {
	if left := time.Until(b.ownUntil()); left > 0 {
		b.mu.Lock()
		b.timer.Reset(left)
		b.mu.Unlock()
		return
	}
	b.end()
}

func (b *sandbox) ownUntil() time.Time {
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	return b.own.expires
}

// end ends the sandbox and returns once nothing of it is left.
func (b *sandbox) end() {
	b.mu.Lock()
	first := !b.ended
	b.ended = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	if !first {
		<-b.done
		return
	}
	if b.box != nil {
		b.box.end()
	}
	b.letGo()
	close(b.done)
}

// find gives a sandbox and the lease that was shown for it.
func (s *service) find(id string, secret []byte, what need) (*sandbox, *lease, error) {
	found, shown, err := s.check(id, secret, what)
	if err == nil {
		found.use(shown)()
	}
	return found, shown, err
}

// use notes that a call with a lease begins; what it returns, that it ended.
func (b *sandbox) use(shown *lease) func() {
	if shown.own {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.uses--
		b.used = time.Now()
	}
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

func (s *service) LendSandbox(
	_ context.Context, request *sandboxv1.LendSandboxRequest,
) (*sandboxv1.LendSandboxResponse, error) {
	found, shown, err := s.find(request.GetSandboxId(), request.GetLease(), needAny)
	if err != nil {
		return nil, err
	}
	if request.GetRequestId() == "" {
		return nil, missing("request_id")
	}
	if !isBoxUser(request.GetScope().GetUser()) {
		return nil, unsupported("scope.user")
	}
	made, fault := found.leases.lend(shown, request)
	if fault != nil {
		return nil, fault
	}
	return &sandboxv1.LendSandboxResponse{Grant: s.grant(found, made, request.GetRole())}, nil
}

func (s *service) RenewLease(
	_ context.Context, request *sandboxv1.RenewLeaseRequest,
) (*sandboxv1.RenewLeaseResponse, error) {
	found, shown, err := s.check(request.GetSandboxId(), request.GetLease(), needAny)
	if err != nil {
		return nil, err
	}
	asked := seconds(request.GetTtlS())
	if asked > longestTTL {
		return nil, invalid("ttl_s", "is more than "+longestTTL.String())
	}
	until := found.leases.renew(shown, asked, found.ends)
	found.mu.Lock()
	defer found.mu.Unlock()
	if !found.ended {
		found.timer.Reset(time.Until(found.ownUntil()))
	}
	return &sandboxv1.RenewLeaseResponse{ExpiresUnixNano: uint64(until.UnixNano())}, nil
}

func (s *service) RevokeLease(
	_ context.Context, request *sandboxv1.RevokeLeaseRequest,
) (*sandboxv1.RevokeLeaseResponse, error) {
	if request.GetSandboxId() == "" {
		return nil, missing("sandbox_id")
	}
	if len(request.GetLease()) == 0 {
		return nil, missing("lease")
	}
	if found := s.get(request.GetSandboxId()); found != nil && found.leases.revoke(request.GetLease()) {
		found.end()
	}
	return &sandboxv1.RevokeLeaseResponse{}, nil
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

func isBoxUser(name string) bool { return name == "" || name == boxUser || name == "1000" }

func assignments(values map[string]string) []string {
	made := make([]string, 0, len(values))
	for name, value := range values {
		made = append(made, name+"="+value)
	}
	return made
}

func missing(field string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_REQUIRED_FIELD_MISSING,
		field+" is required", "field", field)
}

func invalid(field, sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID, field+" "+sentence, "field", field)
}

func unsupported(option string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED,
		fmt.Sprintf("the service does not offer %s", option), "option", option, "backend", backend)
}

func notFound(id, instance string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_NOT_FOUND,
		"the sandbox is not here, or not any more", "sandbox_id", id, "instance_id", instance)
}

func lost(id string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST,
		"the sandbox ended under the call", "sandbox_id", id, "cause", "ended")
}

func draining() *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_DRAINING, "the server is shutting down")
}

// withoutLease is a request as it is compared with a repeat.
func withoutLease[T proto.Message](request T) T {
	made := proto.CloneOf(request)
	reflected := made.ProtoReflect()
	reflected.Clear(reflected.Descriptor().Fields().ByName("lease"))
	return made
}
