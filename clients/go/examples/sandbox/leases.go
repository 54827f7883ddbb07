package main

import (
	"crypto/rand"
	"path"
	"strings"
	"sync"
	"time"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// What a call needs of a lease.
type need int

const (
	needAny need = iota
	needReading
	needFiles
	needPrograms
	needOwn
)

// lease gives access to one sandbox.
type lease struct {
	secret  string
	own     bool
	scope   *sandboxv1.LeaseScope
	given   time.Duration // how long it was first given for
	expires time.Time
	parent  *lease
	revoked bool
}

// until says when a lease ends: with the one that it was made of, at the latest.
func (l *lease) until() time.Time {
	if l.parent != nil {
		if above := l.parent.until(); above.Before(l.expires) {
			return above
		}
	}
	return l.expires
}

func (l *lease) isRevoked() bool { return l.revoked || l.parent != nil && l.parent.isRevoked() }

func (l *lease) allows(what need) bool {
	switch what {
	case needOwn:
		return l.own
	case needPrograms:
		return !l.scope.GetReadOnly() && l.scope.GetFolder() == ""
	case needFiles:
		return !l.scope.GetReadOnly()
	default:
		return true
	}
}

// leases are those of one sandbox.
type leases struct {
	mu    sync.Mutex
	known map[string]*lease
	lent  map[string]*lease // by request_id
}

func (s *leases) add(one *lease) *lease {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	one.secret = string(secret)
	if s.known == nil {
		s.known, s.lent = make(map[string]*lease), make(map[string]*lease)
	}
	s.known[one.secret] = one
	return one
}

// find gives the lease of a secret, if it allows what is needed.
func (s *leases) find(secret []byte, sandbox string, what need) (*lease, *mesherr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.known[string(secret)]
	if found == nil || found.isRevoked() {
		return nil, leaseInvalid(sandbox, "the lease was not given for this sandbox, or was revoked")
	}
	if !time.Now().Before(found.until()) {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LEASE_EXPIRED,
			"the lease was not renewed in time", "sandbox_id", sandbox)
	}
	if !found.allows(what) {
		return nil, leaseInvalid(sandbox, "the lease does not allow this call")
	}
	return found, nil
}

// lend makes a further lease, or finds the one that was made for the same request.
func (s *leases) lend(
	from *lease, request *sandboxv1.LendSandboxRequest,
) (*lease, *mesherr.Error) {
	scope, err := narrowed(from.scope, request.GetScope(), request.GetSandboxId())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.lent[request.GetRequestId()]; known != nil {
		return known, nil
	}
	lasts := time.Until(from.until())
	if asked := seconds(request.GetTtlS()); asked > 0 {
		lasts = asked
	}
	made := s.add(&lease{scope: scope, given: lasts, expires: time.Now().Add(lasts), parent: from})
	s.lent[request.GetRequestId()] = made
	return made, nil
}

// renew lets a lease last longer, up to a time unless that is zero.
func (s *leases) renew(one *lease, asked time.Duration, most time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked == 0 {
		asked = one.given
	}
	later := time.Now().Add(asked)
	if !most.IsZero() && later.After(most) {
		later = most
	}
	if later.After(one.expires) {
		one.expires = later
	}
	return one.until()
}

// revoke ends a lease; it says whether that was the own one.
func (s *leases) revoke(secret []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.known[string(secret)]
	if found == nil {
		return false
	}
	found.revoked = true
	return found.own
}

// narrowed is the scope of a lease made of another; what is not asked for stays as it is.
func narrowed(from, asked *sandboxv1.LeaseScope, sandbox string) (*sandboxv1.LeaseScope, *mesherr.Error) {
	made := &sandboxv1.LeaseScope{
		ReadOnly: from.GetReadOnly() || asked.GetReadOnly(), Folder: from.GetFolder(), User: from.GetUser(),
	}
	if folder := asked.GetFolder(); folder != "" {
		made.Folder = path.Clean("/" + folder)
		if from.GetFolder() != "" && !isBelow(made.Folder, from.GetFolder()) {
			return nil, leaseInvalid(sandbox, "the lease does not allow this folder")
		}
	}
	if user := asked.GetUser(); user != "" {
		if from.GetUser() != "" && user != from.GetUser() {
			return nil, leaseInvalid(sandbox, "the lease does not allow this user")
		}
		made.User = user
	}
	return made, nil
}

// isBelow says whether a clean absolute path is a folder or lies in it.
func isBelow(name, folder string) bool {
	return name == folder || folder == "/" || strings.HasPrefix(name, folder+"/")
}

func leaseInvalid(sandbox, sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LEASE_INVALID, sentence, "sandbox_id", sandbox)
}

func seconds(count uint32) time.Duration { return time.Duration(count) * time.Second }
