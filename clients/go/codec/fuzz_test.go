package codec

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// A document that is read into a message comes back as it was, over the wire as well.
func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}`,
		`{"type":"function_call","call_id":"c","name":"add","arguments":"\ud800 {"}`,
		`{"type":"reasoning","summary":[{"type":"summary_text","text":"so"}]}`,
		`{"input":[{"role":"user","content":"x"}],"tools":[{"type":"function","name":"add"}],"top_p":1.0}`,
		`{"id":"r","output":[],"usage":{"input_tokens":1.0},"error":null,"big":18446744073709551616}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := jsonvalue.Parse(text); err != nil {
			return
		}
		for name, noun := range nouns {
			message := emptyOf(noun)
			if Unmarshal(text, message) != nil {
				continue
			}
			bytes, err := proto.Marshal(message)
			if err != nil {
				t.Fatalf("%s of %q cannot be sent: %v", name, text, err)
			}
			came := emptyOf(noun)
			if err := proto.Unmarshal(bytes, came); err != nil {
				t.Fatal(err)
			}
			written, err := Marshal(came)
			if err != nil {
				t.Fatalf("%s of %q is not written: %v", name, text, err)
			}
			vectors.SameDocument(t, written, text)
		}
	})
}
