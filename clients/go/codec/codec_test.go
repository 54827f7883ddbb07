package codec

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"

	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
)

type noun struct {
	empty func() proto.Message
	read  func([]byte) (proto.Message, error)
	write func(proto.Message) ([]byte, error)
}

func nounOf[T proto.Message](
	empty func() T, read func([]byte) (T, error), write func(T) ([]byte, error),
) noun {
	return noun{
		empty: func() proto.Message { return empty() },
		read:  func(text []byte) (proto.Message, error) { return read(text) },
		write: func(message proto.Message) ([]byte, error) { return write(message.(T)) },
	}
}

func made[T any]() *T { return new(T) }

var nouns = map[string]noun{
	"response": nounOf(made[responsesv1.Response], ResponseFromJSON, ResponseToJSON),
	"params":   nounOf(made[responsesv1.ResponseParams], ParamsFromJSON, ParamsToJSON),
	"item":     nounOf(made[responsesv1.Item], ItemFromJSON, ItemToJSON),
	"tool":     nounOf(made[responsesv1.Tool], ToolFromJSON, ToolToJSON),
	"usage":    nounOf(made[responsesv1.Usage], UsageFromJSON, UsageToJSON),
}

func TestVectors(t *testing.T) {
	var cases []struct {
		Noun, About, JSON string
		Message           json.RawMessage
	}
	vectors.Read(t, "codec.json", &cases)
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, one := range cases {
		t.Run(one.Noun+": "+one.About, func(t *testing.T) {
			noun := nouns[one.Noun]
			want := noun.empty()
			if err := protojson.Unmarshal(one.Message, want); err != nil {
				t.Fatal(err)
			}
			got, err := noun.read([]byte(one.JSON))
			if err != nil {
				t.Fatal(err)
			}
			vectors.SameMessage(t, got, want)
			written, err := noun.write(want)
			if err != nil {
				t.Fatal(err)
			}
			vectors.SameDocument(t, written, []byte(one.JSON))
			if _, err := proto.Marshal(got); err != nil {
				t.Errorf("it cannot be sent: %v", err)
			}
		})
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"output": [{"type": "message"}, NaN]}`: "not valid JSON at byte 33: no value begins like this",
		`[]`:                                     "a response must be a JSON object, not an array",
	} {
		if _, err := ResponseFromJSON([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	unknown := &responsesv1.Response{Output: []*responsesv1.Item{NewMessage("user", "hi"), {}}}
	_, err := ResponseToJSON(unknown)
	if err == nil || err.(*Error).Path != "output[1]" {
		t.Errorf("an item of no kind: %v", err)
	}
}

func TestTextOf(t *testing.T) {
	for text, want := range map[string]string{
		`{"role": "user", "content": "hi"}`: "hi",
		`{"type": "message", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal",
			"refusal": "no"}, {"type": "input_text", "text": "b", "more": 1}]}`: "ab",
		`{"type": "function_call_output", "call_id": "c", "output": "3"}`: "3",
		`{"type": "reasoning", "summary": []}`:                            "",
	} {
		item, err := ItemFromJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := TextOf(item); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}
