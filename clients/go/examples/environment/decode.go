package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// decoder decodes requests. Of one that cannot be decoded it keeps why, for its interceptor to answer:
// the library itself would answer with INTERNAL, and the contract asks for FIELD_INVALID.
type decoder struct {
	encoding.CodecV2
	undecoded sync.Map // why, by request
}

func newDecoder() *decoder {
	return &decoder{CodecV2: encoding.GetCodecV2("proto")}
}

// Unmarshal decodes a message. All calls of the contract's services here are unary, so that each of
// their requests comes to the interceptor.
func (d *decoder) Unmarshal(data mem.BufferSlice, message any) error {
	err := d.CodecV2.Unmarshal(data, message)
	request, isMessage := message.(proto.Message)
	if err == nil || !isMessage ||
		!strings.HasPrefix(string(request.ProtoReflect().Descriptor().FullName()), "gymmesh.") {
		return err
	}
	d.undecoded.Store(message, err)
	return nil
}

// intercept refuses requests that could not be decoded.
func (d *decoder) intercept(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if err, found := d.undecoded.LoadAndDelete(request); found {
		return nil, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID,
			fmt.Sprintf("the request cannot be decoded: %v", err), "field", "")
	}
	return handle(ctx, request)
}
