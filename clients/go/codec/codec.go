// Package codec turns OpenAI Responses JSON into the contract's messages and back, without loss.
//
// How the typed fields and the overlay share an object stands at the top of
// gymmesh/responses/v1/responses.proto. Nothing here changes what it is given. Errors are *Error.
package codec

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

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
	var known *Error
	if !errors.As(err, &known) {
		return &Error{Path: key, Problem: err.Error()}
	}
	path := key
	switch {
	case known.Path == "":
	case known.Path[0] == '[':
		path += known.Path
	default:
		path += "." + known.Path
	}
	return &Error{Path: path, Problem: known.Problem}
}

func parse(text []byte) (any, error) {
	value, err := jsonvalue.Parse(text)
	if err != nil {
		return nil, &Error{Problem: err.Error()}
	}
	return value, nil
}

func parseObject(text []byte, noun string) (*jsonvalue.Object, error) {
	value, err := parse(text)
	if err != nil {
		return nil, err
	}
	object, ok := value.(*jsonvalue.Object)
	if !ok {
		return nil, problem("%s must be a JSON object, not %s", noun, jsonvalue.NameOf(value))
	}
	return object, nil
}

// -- reading: key after key is taken out of a copy of the object, and the rest is the overlay ------

// takeString takes a text that fits a protobuf string.
func takeString(rest *jsonvalue.Object, key string) *string {
	value, _ := rest.Get(key)
	text, ok := value.(string)
	if !ok || !utf8.ValidString(text) {
		return nil
	}
	rest.Delete(key)
	return &text
}

// takeText takes any text, as bytes.
func takeText(rest *jsonvalue.Object, key string) ([]byte, bool) {
	value, _ := rest.Get(key)
	text, ok := value.(string)
	if ok {
		rest.Delete(key)
	}
	return []byte(text), ok
}

func takeBool(rest *jsonvalue.Object, key string) *bool {
	value, _ := rest.Get(key)
	said, ok := value.(bool)
	if !ok {
		return nil
	}
	rest.Delete(key)
	return &said
}

func takeInt(rest *jsonvalue.Object, key string) *int64 {
	value, _ := rest.Get(key)
	number, ok := value.(int64)
	if !ok {
		return nil
	}
	rest.Delete(key)
	return &number
}

// takeJSON takes an object, or also a text, as JSON.
func takeJSON(rest *jsonvalue.Object, key string, texts bool) ([]byte, error) {
	value, _ := rest.Get(key)
	switch value.(type) {
	case *jsonvalue.Object:
	case string:
		if !texts {
			return nil, nil
		}
	default:
		return nil, nil
	}
	rest.Delete(key)
	return write(value)
}

func takeEmptyList(rest *jsonvalue.Object, key string) bool {
	value, _ := rest.Get(key)
	list, ok := value.([]any)
	if !ok || len(list) > 0 {
		return false
	}
	rest.Delete(key)
	return true
}

func readEach[T any](values []any, read func(any) (T, error)) ([]T, error) {
	var made []T
	for i, value := range values {
		one, err := read(value)
		if err != nil {
			return nil, within(fmt.Sprintf("[%d]", i), err)
		}
		made = append(made, one)
	}
	return made, nil
}

// overlayOf is what the typed fields did not take.
func overlayOf(rest *jsonvalue.Object) ([]byte, error) {
	if rest.Len() == 0 {
		return nil, nil
	}
	return write(rest)
}

// -- writing ------------------------------------------------------------------------------------

func write(value any) ([]byte, error) {
	text, err := jsonvalue.Write(value)
	if err != nil {
		return nil, &Error{Problem: err.Error()}
	}
	return text, nil
}

func put[T any](out *jsonvalue.Object, key string, value *T) {
	if value != nil {
		out.Set(key, *value)
	}
}

func putText(out *jsonvalue.Object, key string, text []byte) error {
	if !jsonvalue.ValidText(text) {
		return within(key, problem("not UTF-8"))
	}
	out.Set(key, string(text))
	return nil
}

func putJSON(out *jsonvalue.Object, key string, text []byte) error {
	if text == nil {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		return within(key, err)
	}
	out.Set(key, value)
	return nil
}

// putOverlay adds the overlay's keys, which win over those there already.
func putOverlay(out *jsonvalue.Object, overlay []byte) error {
	if len(overlay) == 0 {
		return nil
	}
	object, err := parseObject(overlay, "an overlay")
	if err != nil {
		return within("overlay_json", err)
	}
	out.Merge(object)
	return nil
}

func writeEach[T any](messages []T, write func(T) (any, error)) ([]any, error) {
	values := make([]any, 0, len(messages))
	for i, message := range messages {
		value, err := write(message)
		if err != nil {
			return nil, within(fmt.Sprintf("[%d]", i), err)
		}
		values = append(values, value)
	}
	return values, nil
}

func finite(key string, number float64) error {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return within(key, problem("%v is not a JSON number", number))
	}
	return nil
}

var errUnknownKind = &Error{Problem: "holds a kind that this version of the contract does not know"}
