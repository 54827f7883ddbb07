// Package mesh connects to services of the mesh, and steers runs.
package mesh

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// MaxMessageBytes is the size of the largest message that a server must take.
const MaxMessageBytes = 64 << 20

// ContractVersion is the version of the contract that this module speaks.
const ContractVersion = "1.0"

const (
	// A server may close connections that are pinged more often than every five minutes.
	keepaliveTime    = 5*time.Minute + 10*time.Second
	keepaliveTimeout = 20 * time.Second
	// DefaultTimeout bounds calls that come without a deadline.
	DefaultTimeout = time.Minute
	// Used where the resolver brings no policy of its own, as xDS does.
	serviceConfig = `{"loadBalancingConfig": [{"round_robin": {}}]}`
)

// Dial returns a connection to a target of gRPC: `host:port`, `dns:///…`, `unix:…`, or `xds:///NAME`
// for programs that import mesh/xds. Options come after the usual ones and win; those for TLS and a
// token are made by Credentials.DialOptions. Nothing is connected yet.
func Dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	usual := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithChainUnaryInterceptor(withDeadline),
	}
	return grpc.NewClient(target, append(usual, options...)...)
}

// withDeadline gives a call a deadline that comes without one.
func withDeadline(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if _, found := ctx.Deadline(); !found {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	return invoke(ctx, method, request, reply, conn, options...)
}
