package main

import (
	"context"
	"crypto/rand"
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

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
