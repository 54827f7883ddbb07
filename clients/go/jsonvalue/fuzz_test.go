package jsonvalue

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What is read is written so that it is read as the same again, and no more is read than JSON.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"a": [1, -0, 2.5e-7, 1e16, null, true], "a": "\ud83d\ude00 \udc00"}`,
		`"\u0000\b\f"`, "\"\xed\xa0\x80\"", `18446744073709551616`, `-0.0`, `[[[]]]`, ` {} `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, err := Parse(text)
		if err != nil {
			return
		}
		written, err := Write(value)
		if err != nil {
			t.Fatalf("%q is read and not written: %v", text, err)
		}
		again, err := Parse(written)
		if err != nil || !same(value, again) {
			t.Fatalf("%q became %q: %v", text, written, err)
		}
		rewritten, err := Write(again)
		if err != nil || !bytes.Equal(written, rewritten) {
			t.Fatalf("%q is written as %q, and then as %q", text, written, rewritten)
		}
		// The standard library reads no WTF-8, but replaces it.
		if !json.Valid(written) {
			t.Fatalf("%q is written as %q, which is no JSON", text, written)
		}
	})
}
