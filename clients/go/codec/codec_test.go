package codec

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	modelv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/model/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	rowv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/row/v1"

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

func TestFormsOfARow(t *testing.T) {
	row := &rowv1.Row{
		Tags:    map[string]string{"b": "2", "a": "1"},
		Media:   []*rolloutv1.Media{{Data: []byte{0xFB, 0xFF}}},
		Program: &rolloutv1.ProgramEnded{OutputTail: []byte("\xa9 caf\xc3")},
		Calls: []*rowv1.ModelCall{{Tokens: &modelv1.TokenCapture{
			OutputTokenIds:  []byte{1, 1, 0, 0},
			Logprobs:        []byte{0, 0, 0, 0xBF, 0, 0, 0xC0, 0x7F},
			TokenizerDigest: []byte{0xAB},
			Weights:         []*modelv1.WeightsSpan{{Version: math.MaxUint64}},
		}}},
	}
	text, err := Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"tags":{"a":"1","b":"2"}`, `"data":"+/8="`, `"output_tail":"� caf�"`,
		`"prompt_token_ids":[],"output_token_ids":[257],"logprobs":[-0.5,null]`,
		`"version":18446744073709551615`, `"tokenizer_digest":"ab"`, `"reward":null`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	again := &rowv1.Row{}
	if err := Unmarshal(text, again); err != nil {
		t.Fatal(err)
	}
	if got := again.GetCalls()[0].GetTokens(); !proto.Equal(got, row.GetCalls()[0].GetTokens()) {
		t.Errorf("the tokens were read as %v", got)
	}
	row.Calls[0].Tokens.OutputTokenIds = []byte{1, 2, 3}
	if _, err := Marshal(row); err == nil || err.(*Error).Path != "calls[0].tokens.output_token_ids" {
		t.Errorf("three bytes are no token: %v", err)
	}
}

func TestNegativeTokenIDsAreNotWritten(t *testing.T) {
	ids := []byte{1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}
	_, err := Marshal(&modelv1.TokenCapture{OutputTokenIds: ids})
	if err == nil || err.Error() != "output_token_ids[1]: -1 is negative" {
		t.Error(err)
	}
}

func TestWhatFitsAFormOfBytes(t *testing.T) {
	for text, fits := range map[string]bool{
		`{"logprobs": [-1, -2.5, null, 0]}`:  true,
		`{"prompt_token_ids": [-1]}`:         false,
		`{"prompt_token_ids": [2147483648]}`: false,
		`{"tokenizer_digest": "ab"}`:         true,
		`{"tokenizer_digest": "AB"}`:         false,
	} {
		tokens := &modelv1.TokenCapture{}
		if err := Unmarshal([]byte(text), tokens); err != nil {
			t.Fatal(err)
		}
		if got := len(tokens.GetLogprobs()) + len(tokens.GetTokenizerDigest()); (got > 0) != fits {
			t.Errorf("%s: %v", text, tokens)
		}
	}
	for text, fits := range map[string]bool{"+/8=": true, `+/\n8=`: false, "+/8": false, "+/9=": false} {
		media := &rolloutv1.Media{}
		if err := Unmarshal([]byte(`{"data": "`+text+`"}`), media); err != nil {
			t.Fatal(err)
		}
		if (len(media.GetData()) > 0) != fits {
			t.Errorf("%s: %v", text, media)
		}
	}
}

func TestALargeIntegerThatNoDoubleHolds(t *testing.T) {
	for text, fits := range map[string]bool{"9223372036854774784": true, "9223372036854775807": false} {
		row := &rowv1.Row{}
		if err := Unmarshal([]byte(`{"reward": `+text+`}`), row); err != nil {
			t.Fatal(err)
		}
		if (row.Reward != nil) != fits {
			t.Errorf("%s: %v", text, row)
		}
	}
}
