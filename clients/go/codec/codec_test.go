package codec

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"

	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
)

var nouns = map[string]proto.Message{
	"response": &responsesv1.Response{},
	"params":   &responsesv1.ResponseParams{},
	"item":     &responsesv1.Item{},
	"tool":     &responsesv1.Tool{},
	"usage":    &responsesv1.Usage{},
}

func emptyOf(noun proto.Message) proto.Message { return noun.ProtoReflect().New().Interface() }

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
			want, got := emptyOf(nouns[one.Noun]), emptyOf(nouns[one.Noun])
			if err := protojson.Unmarshal(one.Message, want); err != nil {
				t.Fatal(err)
			}
			if err := Unmarshal([]byte(one.JSON), got); err != nil {
				t.Fatal(err)
			}
			vectors.SameMessage(t, got, want)
			written, err := Marshal(want)
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
		`{"output": [{"type": "message"}, NaN]}`: "not valid JSON at byte 33: invalid character 'N' at start of value",
		`[]`:                                     "Response is not read from an array",
	} {
		if err := Unmarshal([]byte(text), &responsesv1.Response{}); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	unknown := &responsesv1.Response{Output: []*responsesv1.Item{NewMessage("user", "hi"), {}}}
	_, err := Marshal(unknown)
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
		item := &responsesv1.Item{}
		if err := Unmarshal([]byte(text), item); err != nil {
			t.Fatal(err)
		}
		if got, err := TextOf(item); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}
