package jsonvalue

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// same says whether two values are the same document.
func same(a, b any) bool {
	one, _ := Write(Sorted(a))
	other, _ := Write(Sorted(b))
	return bytes.Equal(one, other)
}

func TestWrittenTextIsTheSameDocument(t *testing.T) {
	for _, text := range []string{
		`{"a":[1,1.0,-0.0,0.0,1e300,1e-7,1e16,123456.75,0.00001]}`,
		`[18446744073709551616,-9223372036854775808,9223372036854775807,true,false,null]`,
		`{"😀":"\u0000\n\t\"\\\b\f\r\u2028\ud800 x \udc00"}`,
		`[[],{},"",{"":0}]`,
		"\"\xed\xa0\x80 alone\"",
		`[-0]`,
	} {
		value, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		written, err := Write(value)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(written)
		if err != nil {
			t.Fatal(err)
		}
		if !same(value, again) {
			t.Errorf("%s became %s", text, written)
		}
	}
}

func TestDocumentsAreToldApart(t *testing.T) {
	for _, pair := range [][2]string{
		{"1", "1.0"}, {"0.0", "-0.0"}, {"null", "{}"}, {`{"a":null}`, "{}"}, {"[1,2]", "[2,1]"},
		{`"\ud800"`, `"\udc00"`}, {"18446744073709551616", "18446744073709551617"},
	} {
		a, _ := Parse([]byte(pair[0]))
		b, _ := Parse([]byte(pair[1]))
		if same(a, b) {
			t.Errorf("%s equals %s", pair[0], pair[1])
		}
	}
}

func TestEqualDocuments(t *testing.T) {
	for _, pair := range [][2]string{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`"\ud83d\ude00"`, `"😀"`},
		{"\"\xed\xa0\xbd\xed\xb8\x80\"", `"😀"`},
		{"1.50", "15e-1"},
	} {
		a, _ := Parse([]byte(pair[0]))
		b, _ := Parse([]byte(pair[1]))
		if !same(a, b) {
			t.Errorf("%s does not equal %s", pair[0], pair[1])
		}
	}
}

func TestRealsAreWrittenAsUsual(t *testing.T) {
	for real, want := range map[float64]string{
		1700000000.001: "1700000000.001", 1: "1.0", 1e300: "1e+300", 1e16: "1e+16", 1e15: "1000000000000000.0",
		2.5e-7: "2.5e-7", 1e-5: "0.00001", 1e100: "1e+100", 1e-10: "1e-10",
	} {
		if got, _ := Write(real); string(got) != want {
			t.Errorf("%v: %s, not %s", real, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for _, text := range []string{
		"", "{", "[1,]", `{"a":1,}`, "01", "1.", "-", "1e", "NaN", "Infinity", "nul", "'a'", `"`, "\"\n\"",
		`"\x"`, `"\u12"`, "\"\xff\"", "1 2", "1e999", strings.Repeat("9", 4301), deep, "[1}", `{"a" 1}`, "{1:2}",
	} {
		_, err := Parse([]byte(text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%.40q was read: %v", text, err)
		}
	}
	if _, err := Parse([]byte("-" + strings.Repeat("9", maxDigits))); err != nil {
		t.Errorf("%d digits below zero: %v", maxDigits, err)
	}
	if _, err := Parse([]byte(deep[1 : len(deep)-1])); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
}
