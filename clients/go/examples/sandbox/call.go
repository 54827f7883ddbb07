package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

// A call about files is done by a helper in the sandbox: the request goes to its standard input, and
// frames come from its standard output. A frame is a byte, and a message behind it.
const (
	frameAnswer = 'a'
	frameError  = 'e'
	frameEnd    = 'z'
)

var delimited = protodelim.UnmarshalOptions{MaxSize: mesh.MaxMessageBytes}

// call has a call done in the sandbox. Each answer is read into `into` and handed to `took`, where they
// are given.
func (b *box) call(
	ctx context.Context, asked *order, request, into proto.Message, took ...func() error,
) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer ours.Close() // the helper ends with it
	defer theirs.Close()
	inputs, input, err := os.Pipe()
	if err != nil {
		return err
	}
	defer inputs.Close()
	outputs, output, err := os.Pipe()
	if err != nil {
		input.Close()
		return err
	}
	defer outputs.Close()
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer nowhere.Close()
		err = b.hand(inputs, output, nowhere, theirs)
	}
	output.Close()
	if err == nil {
		err = json.NewEncoder(ours).Encode(asked)
	}
	if err != nil {
		input.Close()
		return err
	}
	inputs.Close()
	theirs.Close()
	stop := context.AfterFunc(ctx, func() { ours.Close() })
	defer stop()
	go func() {
		protodelim.MarshalTo(input, request)
		input.Close()
	}()
	err = frames(bufio.NewReader(outputs), into, took)
	if errors.Is(err, errBroken) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

var errBroken = errors.New("the helper in the sandbox was killed")

func frames(from *bufio.Reader, into proto.Message, took []func() error) error {
	for {
		kind, err := from.ReadByte()
		if err != nil {
			return errBroken
		}
		switch kind {
		case frameEnd:
			return nil
		case frameError:
			said := &spb.Status{}
			if delimited.UnmarshalFrom(from, said) != nil {
				return errBroken
			}
			return mesherr.FromStatus(said)
		}
		proto.Reset(into)
		if kind != frameAnswer || delimited.UnmarshalFrom(from, into) != nil {
			return errBroken
		}
		for _, one := range took {
			if err := one(); err != nil {
				return err
			}
		}
	}
}

// answer does a call in the sandbox.
func answer(asked *order) {
	out := bufio.NewWriter(os.Stdout)
	send := func(message proto.Message) error {
		out.WriteByte(frameAnswer)
		_, err := protodelim.MarshalTo(out, message)
		return err
	}
	err := filesFor(asked).do(asked, bufio.NewReader(os.Stdin), send)
	if err != nil {
		out.WriteByte(frameError)
		protodelim.MarshalTo(out, mesherr.FromError(err).Status())
	} else {
		out.WriteByte(frameEnd)
	}
	out.Flush()
}

func readRequest(from io.Reader, into proto.Message) error {
	if err := delimited.UnmarshalFrom(from.(*bufio.Reader), into); err != nil {
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_INTERNAL_FAULT, fmt.Sprint("the helper: ", err))
	}
	return nil
}
