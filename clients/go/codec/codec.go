// Package codec turns the contract's messages into JSON and back: the documents of the Responses API,
// without loss, and rows. The rule is that of gymmesh/json/v1/json.proto, whose options it reads from
// the descriptors. Functions never change their arguments. Errors are *Error.
package codec

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// Error says what cannot be read or written, and where.
type Error struct {
	// Path is the place, such as `output[0].content`; empty for the whole document.
	Path string
	// Problem is a short sentence.
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

func problem(format string, args ...any) error {
	return &Error{Problem: fmt.Sprintf(format, args...)}
}

// within puts a key or an index (`[3]`) before an error's path.
func within(key string, err error) error {
	if err == nil {
		return nil
	}
	known := &Error{Problem: err.Error()}
	errors.As(err, &known)
	path := key
	if known.Path != "" && known.Path[0] != '[' {
		path += "."
	}
	return &Error{Path: path + known.Path, Problem: known.Problem}
}

// Unmarshal reads a JSON document into an empty message, such as the body of `POST /v1/responses`
// into a ResponseParams.
func Unmarshal(text []byte, into proto.Message) error {
	value, err := parse(text)
	if err != nil {
		return err
	}
	return FromValue(value, into)
}

// FromValue is Unmarshal of a parsed document.
func FromValue(value any, into proto.Message) error {
	message := into.ProtoReflect()
	fits, err := read(value, message)
	if err == nil && !fits {
		err = problem("%s is not read from %s", message.Descriptor().Name(), jsonvalue.NameOf(value))
	}
	return err
}

// Marshal writes a message as JSON.
func Marshal(message proto.Message) ([]byte, error) {
	value, err := ToValue(message)
	if err != nil {
		return nil, err
	}
	return write(value)
}

// ToValue is Marshal up to a parsed document.
func ToValue(message proto.Message) (any, error) {
	return valueOf(message.ProtoReflect())
}

func parse(text []byte) (any, error) {
	value, err := jsonvalue.Parse(text)
	if err != nil {
		return nil, &Error{Problem: err.Error()}
	}
	return value, nil
}

func write(value any) ([]byte, error) {
	text, err := jsonvalue.Write(value)
	if err != nil {
		return nil, &Error{Problem: err.Error()}
	}
	return text, nil
}
