package mesh

import (
	"context"
	"time"

	"google.golang.org/grpc"

	discoveryv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/discovery/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

const (
	registryCall   = 5 * time.Second
	firstRetry     = 200 * time.Millisecond
	longestRetry   = 5 * time.Second
	shortestRenew  = 100 * time.Millisecond
	leaseWantedSec = 15
)

// Registration keeps an instance listed at a registry.
type Registration struct {
	client   discoveryv1.DiscoveryServiceClient
	instance *discoveryv1.Instance
	leaseID  string
	// OnError is told of every call that failed; it is tried again. May be nil.
	OnError func(error)
}

// NewRegistration returns the registration of an instance at a registry. Nothing is called yet.
func NewRegistration(
	registry grpc.ClientConnInterface, instance *discoveryv1.Instance,
) *Registration {
	return &Registration{client: discoveryv1.NewDiscoveryServiceClient(registry), instance: instance}
}

// Keep registers the instance and renews its lease until the context ends, and then gives the lease
// back. An unreachable registry is called again; an expired lease is replaced.
func (r *Registration) Keep(ctx context.Context) {
	wait := time.Duration(0)
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			r.deregister(context.WithoutCancel(ctx))
			return
		case <-time.After(wait):
		}
		lease, err := r.extend(ctx)
		if err != nil {
			if r.OnError != nil && ctx.Err() == nil {
				r.OnError(mesherr.FromError(err))
			}
			wait, retry = retry, min(2*retry, longestRetry)
			continue
		}
		wait, retry = max(lease/3, shortestRenew), firstRetry
	}
}

// extend renews the lease, or registers where there is none any more; it gives the lease's length.
func (r *Registration) extend(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, registryCall)
	defer cancel()
	if r.leaseID != "" {
		renewed, err := r.client.Renew(ctx, &discoveryv1.RenewRequest{
			LeaseId: r.leaseID, Health: discoveryv1.Health_HEALTH_SERVING,
		})
		if err == nil {
			return time.Duration(renewed.GetLeaseS()) * time.Second, nil
		}
		if mesherr.FromError(err).Reason != errorsv1.ErrorReason_ERROR_REASON_LEASE_NOT_FOUND {
			return 0, err
		}
		r.leaseID = ""
	}
	registered, err := r.client.Register(ctx, &discoveryv1.RegisterRequest{
		Instance: r.instance, LeaseS: leaseWantedSec,
	})
	if err != nil {
		return 0, err
	}
	r.leaseID = registered.GetLeaseId()
	return time.Duration(registered.GetLeaseS()) * time.Second, nil
}

func (r *Registration) deregister(ctx context.Context) {
	if r.leaseID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, registryCall)
	defer cancel()
	_, err := r.client.Deregister(ctx, &discoveryv1.DeregisterRequest{LeaseId: r.leaseID})
	if err != nil && r.OnError != nil {
		r.OnError(mesherr.FromError(err))
	}
	r.leaseID = ""
}
