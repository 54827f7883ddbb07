// Command environment serves a pantry: an environment whose tools fill shelves that live as long as
// the session, and whose verifier gives partial credit.
//
//	environment --listen 127.0.0.1:9402 [--registry 127.0.0.1:9400] [--name pantry]
//
// With a registry it is found there by agents, as any other environment of the mesh.
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
	resourcev1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/resource/v1"
	verifyv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/verify/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
)

// How long open sessions, and then running calls, may take to end when the server goes down.
const drainTime = 10 * time.Second

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to serve at; port 0: the system chooses")
	registry := flag.String("registry", "", "`address` of the registry; empty: none")
	name := flag.String("name", "pantry", "the environment's name in the mesh")
	limit := flag.Int("session-limit", 1000, "the most sessions; 0: no limit")
	audit := flag.Bool("audit", false, "give the right answers to whoever asks, for gym-cli env audit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	service := newService(*name, fmt.Sprintf("%s-%s", *name, rand.Text()[:10]), *limit)
	service.audit = *audit
	if err := serve(ctx, listener, service, *registry); err != nil {
		log.Fatal(err)
	}
}

// serve serves until the context ends.
func serve(ctx context.Context, listener net.Listener, service *service, registry string) error {
	requests := serving.NewDecoder()
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(requests),
		grpc.MaxRecvMsgSize(mesh.MaxMessageBytes),
		grpc.MaxSendMsgSize(mesh.MaxMessageBytes),
		grpc.ChainUnaryInterceptor(serving.TypedErrors(errorsv1.ErrorReason_ERROR_REASON_ENVIRONMENT_FAULT), requests.Intercept),
	)
	resourcev1.RegisterResourceServiceServer(server, service)
	verifyv1.RegisterVerifyServiceServer(server, service)
	verifyv1.RegisterAuditServiceServer(server, service)
	checks := health.NewServer()
	for _, one := range []string{
		"", resourcev1.ResourceService_ServiceDesc.ServiceName, verifyv1.VerifyService_ServiceDesc.ServiceName,
	} {
		checks.SetServingStatus(one, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(server, checks)
	log.Printf("%s serves at %s", service.id, listener.Addr())

	var others sync.WaitGroup
	sweeping, stopSweeping := context.WithCancel(context.Background())
	others.Go(func() { service.sessions.sweep(sweeping) })
	if registry != "" {
		conn, err := mesh.Dial(registry)
		if err != nil {
			stopSweeping()
			return err
		}
		defer conn.Close()
		registration := mesh.NewRegistration(conn, instanceOf(service, listener.Addr()))
		registration.OnError = func(err error) { log.Printf("registry: %v", err) }
		others.Go(func() { registration.Keep(ctx) })
	}
	others.Go(func() {
		<-ctx.Done()
		checks.Shutdown()
		service.sessions.drain(drainTime)
		timer := time.AfterFunc(drainTime, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	})
	err := server.Serve(listener)
	stopSweeping()
	if ctx.Err() == nil {
		return err
	}
	others.Wait()
	return nil
}

func instanceOf(service *service, address net.Addr) *discoveryv1.Instance {
	return &discoveryv1.Instance{
		Id:              service.id,
		Service:         resourcev1.ResourceService_ServiceDesc.ServiceName,
		Name:            service.name,
		Address:         address.String(),
		ContractVersion: mesh.ContractVersion,
		Health:          discoveryv1.Health_HEALTH_SERVING,
	}
}
