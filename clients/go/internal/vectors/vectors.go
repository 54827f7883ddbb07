// Package vectors reads the test vectors that clients in every language share.
package vectors

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // details of statuses
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	_ "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1" // as well
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// Folder holds them, seen from a package of this module.
var folder = filepath.Join("..", "..", "..", "tests", "contract")

// FoldCase is a case of the fold.
type FoldCase struct {
	RolloutID     string                     `json:"rollout_id"`
	Attempt       uint32                     `json:"attempt"`
	RunID         string                     `json:"run_id"`
	TaskID        string                     `json:"task_id"`
	RepeatIndex   uint32                     `json:"repeat_index"`
	Events        []json.RawMessage          `json:"events"`
	Rollout       json.RawMessage            `json:"rollout"`
	Conversations map[string]json.RawMessage `json:"conversations"`
	Transcript    json.RawMessage            `json:"transcript"`
	Violates      string                     `json:"violates"`
}

// Folds returns the cases of the fold by name. None at all is a failure.
func Folds(t testing.TB) map[string]FoldCase {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "fold_vectors", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fold vectors: %v", err)
	}
	cases := make(map[string]FoldCase)
	for _, path := range paths {
		var one FoldCase
		read(t, path, &one)
		cases[strings.TrimSuffix(filepath.Base(path), ".json")] = one
	}
	return cases
}

// Read reads one of the other files.
func Read(t testing.TB, name string, into any) {
	t.Helper()
	read(t, filepath.Join(folder, "vectors", name), into)
}

func read(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// SameDocument fails unless two JSON texts are equal documents.
func SameDocument(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(canonical(t, got), canonical(t, want)) {
		t.Errorf("another document:\n got %s\nwant %s", got, want)
	}
}

// SameMessage fails unless two messages are equal, JSON within them compared as documents.
func SameMessage(t *testing.T, got, want proto.Message) {
	t.Helper()
	got, want = proto.Clone(got), proto.Clone(want)
	normalise(t, got.ProtoReflect())
	normalise(t, want.ProtoReflect())
	if !proto.Equal(got, want) {
		t.Errorf("another message:\n got %v\nwant %v", got, want)
	}
}

func normalise(t *testing.T, message protoreflect.Message) {
	t.Helper()
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(field.Name())
		switch {
		case field.IsMap():
		case field.Kind() == protoreflect.MessageKind && field.IsList():
			for i := range value.List().Len() {
				normalise(t, value.List().Get(i).Message())
			}
		case field.Kind() == protoreflect.MessageKind:
			normalise(t, value.Message())
		case field.Kind() == protoreflect.BytesKind && (name == "json" || strings.HasSuffix(name, "_json")):
			message.Set(field, protoreflect.ValueOfBytes(canonical(t, value.Bytes())))
		}
		return true
	})
}

func canonical(t *testing.T, text []byte) []byte {
	t.Helper()
	value, err := jsonvalue.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	written, err := jsonvalue.Write(jsonvalue.Sorted(value))
	if err != nil {
		t.Fatal(err)
	}
	return written
}
