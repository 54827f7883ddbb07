package serving

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

// Decoder decodes requests. Of one that cannot be decoded it keeps why, for its interceptors to answer:
// the library itself would answer with INTERNAL, and the contract asks for FIELD_INVALID.
type Decoder struct {
	encoding.CodecV2
	undecoded sync.Map // why, by request
}

// NewDecoder returns a decoder, to be used with its interceptors.
func NewDecoder() *Decoder {
	return &Decoder{CodecV2: encoding.GetCodecV2("proto")}
}

// Unmarshal decodes a message.
func (d *Decoder) Unmarshal(data mem.BufferSlice, message any) error {
	err := d.CodecV2.Unmarshal(data, message)
	request, isMessage := message.(proto.Message)
	if err == nil || !isMessage ||
		!strings.HasPrefix(string(request.ProtoReflect().Descriptor().FullName()), "gymmesh.") {
		return err
	}
	d.undecoded.Store(message, err)
	return nil
}

// Intercept refuses requests that could not be decoded.
func (d *Decoder) Intercept(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if err := d.refuse(request); err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

// InterceptStream does the same for calls that answer with a stream.
func (d *Decoder) InterceptStream(
	server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	return handle(server, &decoded{stream, d})
}

type decoded struct {
	grpc.ServerStream
	by *Decoder
}

func (d *decoded) RecvMsg(message any) error {
	if err := d.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return d.by.refuse(message)
}

func (d *Decoder) refuse(request any) error {
	if err, found := d.undecoded.LoadAndDelete(request); found {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_FIELD_INVALID,
			fmt.Sprintf("the request cannot be decoded: %v", err), "field", "")
	}
	return nil
}
