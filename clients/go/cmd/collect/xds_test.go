package main

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// controlPlane is an xDS server that knows one name and the addresses behind it.
type controlPlane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources map[string]proto.Message // by the type's URL
}

// serveXDS serves a name for some addresses; it gives the bootstrap configuration of clients.
func serveXDS(t *testing.T, name string, addresses ...string) string {
	t.Helper()
	plane := &controlPlane{resources: make(map[string]proto.Message)}
	for _, resource := range resourcesOf(t, name, addresses) {
		plane.resources[packed(t, resource).GetTypeUrl()] = resource
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, plane)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}],
		"server_features": ["xds_v3"]}], "node": {"id": "collector"}}`, listener.Addr())
}

func (p *controlPlane) StreamAggregatedResources(
	calls discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	answered := make(map[string]string)
	for {
		request, err := calls.Recv()
		if err != nil {
			return nil
		}
		kind := request.GetTypeUrl()
		names := fmt.Sprint(request.GetResourceNames())
		resource := p.resources[kind]
		if resource == nil || answered[kind] == names || len(request.GetResourceNames()) == 0 {
			continue // an acknowledgement
		}
		answered[kind] = names
		content, err := anypb.New(resource)
		if err != nil {
			return err
		}
		err = calls.Send(&discoveryv3.DiscoveryResponse{
			VersionInfo: "1", Nonce: kind, TypeUrl: kind, Resources: []*anypb.Any{content},
		})
		if err != nil {
			return err
		}
	}
}

func packed(t *testing.T, message proto.Message) *anypb.Any {
	t.Helper()
	made, err := anypb.New(message)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// resourcesOf are a listener with its route, a cluster, and its endpoints.
func resourcesOf(t *testing.T, name string, addresses []string) []proto.Message {
	t.Helper()
	route := &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: name, Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name},
			}},
		}},
	}}}
	manager := &managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: route},
		HttpFilters: []*managerv3.HttpFilter{{
			Name:       "router",
			ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})},
		}},
	}
	self := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}
	locality := &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Zone: "here"}, LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for _, address := range addresses {
		locality.LbEndpoints = append(locality.LbEndpoints, endpoint(t, address))
	}
	return []proto.Message{
		&listenerv3.Listener{
			Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: packed(t, manager)},
		},
		&clusterv3.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: self},
			LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
		},
		&endpointv3.ClusterLoadAssignment{
			ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality},
		},
	}
}

func endpoint(t *testing.T, address string) *endpointv3.LbEndpoint {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	socket := &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
	}
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: socket}},
		},
	}}
}
