package main

import (
	"context"
	"time"

	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"
)

func (s *service) grant(of *sandbox, one *lease, role string) *sandboxv1.SandboxGrant {
	return &sandboxv1.SandboxGrant{
		Sandbox: s.reference(of), Lease: []byte(one.secret), Role: role,
		ExpiresUnixNano: uint64(one.until().UnixNano()),
	}
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
