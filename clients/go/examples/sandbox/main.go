// Command sandbox serves sandboxes: gymmesh.sandbox.v1 in a few hundred lines of Go, with bubblewrap
// behind it.
//
//	sandbox --listen 127.0.0.1:9405 [--registry 127.0.0.1:9400] [--name boxes]
//
// A sandbox is a folder as its root, with the host's /usr in it, and one bubblewrap around all that runs
// there. This program is in it, too: it starts processes, and reads and writes files, from inside, so that
// a path means what it means to the sandbox's own programs. It needs Linux and `bwrap`.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	discoveryv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/discovery/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
)

// How long running calls may take to end when the server goes down.
const drainTime = 5 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == insideWord {
		inside(os.Args[2:])
		return
	}
	listen := flag.String("listen", "127.0.0.1:0", "`address` to serve at; port 0: the system chooses")
	registry := flag.String("registry", "", "`address` of the registry; empty: none")
	name := flag.String("name", "boxes", "the service's name in the mesh")
	folder := flag.String("folder", "", "`path` of a folder for the sandboxes, which is emptied; empty: a temporary one")
	places := flag.Int("places", 64, "the most sandboxes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *registry, *name, *folder, *places); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, registry, name, folder string, places int) error {
	host, err := newHost(folder)
	if err != nil {
		return err
	}
	defer host.close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	service := newService(name, fmt.Sprintf("%s-%s", name, rand.Text()[:10]), places, host)
	return serve(ctx, listener, service, registry)
}

// serve serves until the context ends.
func serve(ctx context.Context, listener net.Listener, service *service, registry string) error {
	requests := serving.NewDecoder()
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(requests),
		grpc.MaxRecvMsgSize(mesh.MaxMessageBytes),
		grpc.MaxSendMsgSize(mesh.MaxMessageBytes),
		grpc.ChainUnaryInterceptor(serving.TypedErrors(errorsv1.ErrorReason_ERROR_REASON_INTERNAL_FAULT), requests.Intercept),
		grpc.ChainStreamInterceptor(serving.TypedStreamErrors, requests.InterceptStream),
	)
	sandboxv1.RegisterSandboxServiceServer(server, service)
	checks := health.NewServer()
	for _, one := range []string{"", sandboxv1.SandboxService_ServiceDesc.ServiceName} {
		checks.SetServingStatus(one, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(server, checks)
	log.Printf("%s serves at %s", service.id, listener.Addr())

	var others sync.WaitGroup
	if registry != "" {
		conn, err := mesh.Dial(registry)
		if err != nil {
			return err
		}
		defer conn.Close()
		registration := mesh.NewRegistration(conn, &discoveryv1.Instance{
			Id:              service.id,
			Service:         sandboxv1.SandboxService_ServiceDesc.ServiceName,
			Name:            service.name,
			Address:         listener.Addr().String(),
			ContractVersion: mesh.ContractVersion,
			Health:          discoveryv1.Health_HEALTH_SERVING,
		})
		registration.OnError = func(err error) { log.Printf("registry: %v", err) }
		others.Go(func() { registration.Keep(ctx) })
	}
	others.Go(func() {
		<-ctx.Done()
		checks.Shutdown()
		service.drain()
		timer := time.AfterFunc(drainTime, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	})
	err := server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	others.Wait()
	service.endAll()
	return nil
}
