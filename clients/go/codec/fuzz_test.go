package codec

import (
	"testing"

	"google.golang.org/protobuf/proto"

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
		document, err := jsonvalue.Parse(text)
		if err != nil {
			return
		}
		for name, noun := range nouns {
			message, err := noun.read(text)
			if err != nil {
				continue
			}
			bytes, err := proto.Marshal(message)
			if err != nil {
				t.Fatalf("%s of %q cannot be sent: %v", name, text, err)
			}
			came := noun.empty()
			if err := proto.Unmarshal(bytes, came); err != nil {
				t.Fatal(err)
			}
			written, err := noun.write(came)
			if err != nil {
				t.Fatalf("%s of %q is not written: %v", name, text, err)
			}
			if again, err := jsonvalue.Parse(written); err != nil || !jsonvalue.Equal(document, again) {
				t.Fatalf("%s of %q became %q: %v", name, text, written, err)
			}
		}
	})
}
