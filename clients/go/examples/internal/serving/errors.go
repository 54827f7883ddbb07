package serving

import (
	"context"
	"fmt"
	"log"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// How long before a call's deadline it is answered with DEADLINE_PASSED, at most.
const longestMargin = 50 * time.Millisecond

// TypedErrors has every error of a call carry a reason of the contract. A panic is a fault, for which
// the service has its own reason.
func TypedErrors(fault errorsv1.ErrorReason) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
	) (any, error) {
		return typedAnswer(ctx, fault, request, handle)
	}
}

func typedAnswer(
	ctx context.Context, fault errorsv1.ErrorReason, request any, handle grpc.UnaryHandler,
) (answer any, err error) {
	ctx, cancel := early(ctx)
	defer cancel()
	defer recovered(fault, &err)
	answer, err = handle(ctx, request)
	return answer, typed(err)
}

// TypedStreamErrors does the same for calls that answer with a stream.
func TypedStreamErrors(
	server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) (err error) {
	ctx, cancel := early(stream.Context())
	defer cancel()
	defer recovered(errorsv1.ErrorReason_ERROR_REASON_INTERNAL_FAULT, &err)
	return typed(handle(server, &earlier{stream, ctx}))
}

type earlier struct {
	grpc.ServerStream
	ctx context.Context
}

func (e *earlier) Context() context.Context { return e.ctx }

// early is a context that ends a little before its deadline: at the deadline itself the library resets the
// stream, which the caller may see as CANCELLED.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	due, found := ctx.Deadline()
	if !found {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, due.Add(-min(time.Until(due)/10, longestMargin)))
}

// recovered makes a panic an error.
func recovered(reason errorsv1.ErrorReason, err *error) {
	if thrown := recover(); thrown != nil {
		*err = Fault(reason, thrown)
	}
}

// Fault is a fault of the service; its words, which may hold anything, stay in the log.
func Fault(reason errorsv1.ErrorReason, thrown any) *mesherr.Error {
	log.Printf("fault: %v\n%s", thrown, debug.Stack())
	return mesherr.New(reason, "the service failed; its log says why", "exception", fmt.Sprintf("%T", thrown))
}

func typed(err error) error {
	if err == nil {
		return nil
	}
	if _, isStatus := status.FromError(err); !isStatus {
		return mesherr.FromError(err)
	}
	return err
}
