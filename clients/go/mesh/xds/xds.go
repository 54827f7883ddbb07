// Package xds makes `xds:///NAME` a target that mesh.Dial understands, with the bootstrap that
// GRPC_XDS_BOOTSTRAP names. Import it for this effect:
//
//	import _ "github.com/gymmesh/gymmesh/clients/go/mesh/xds"
//
// It is a package of its own because it adds some 24 MB to a program.
package xds

import _ "google.golang.org/grpc/xds" // registers the resolver and the balancers
