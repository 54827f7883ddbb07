package jsonvalue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Integers of more digits are refused: their conversion takes quadratic time.
const maxDigits = 4300

// SyntaxError says why a text is not JSON that can be read.
type SyntaxError struct {
	// Offset is the byte at which it was found.
	Offset  int64
	Problem string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not valid JSON at byte %d: %s", e.Offset, e.Problem)
}

// Parse reads one JSON text, which is UTF-8 or WTF-8. Of several equal keys the last one counts.
// The error is a *SyntaxError.
func Parse(text []byte) (any, error) {
	p := parser{jsontext.NewDecoder(bytes.NewBuffer(text),
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))}
	value, err := p.value(0)
	if err == nil {
		if _, err = p.tokens.ReadToken(); errors.Is(err, io.EOF) {
			return value, nil
		} else if err == nil {
			err = p.fail("more text after the value")
		}
	}
	var library *jsontext.SyntacticError
	if errors.As(err, &library) {
		return nil, &SyntaxError{Offset: library.ByteOffset, Problem: library.Err.Error()}
	} else if errors.Is(err, io.EOF) {
		return nil, p.fail("the text is empty")
	}
	return nil, err
}

// ParseObject reads a text that must hold an object.
func ParseObject(text []byte) (*Object, error) {
	value, err := Parse(text)
	if err != nil {
		return nil, err
	}
	object, ok := value.(*Object)
	if !ok {
		return nil, &SyntaxError{Problem: "an object is required, not " + NameOf(value)}
	}
	return object, nil
}

// parser reads values from a decoder that checks the syntax.
type parser struct{ tokens *jsontext.Decoder }

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Offset: p.tokens.InputOffset(), Problem: fmt.Sprintf(format, args...)}
}

func (p *parser) value(depth int) (any, error) {
	kind := p.tokens.PeekKind()
	if kind == '{' || kind == '[' {
		if depth >= MaxDepth {
			return nil, p.fail("nested deeper than %d levels", MaxDepth)
		}
		if _, err := p.tokens.ReadToken(); err != nil {
			return nil, err
		}
		if kind == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	}
	raw, err := p.tokens.ReadValue()
	if err != nil {
		return nil, err
	}
	switch kind {
	case '"':
		return p.string(raw[1 : len(raw)-1])
	case '0':
		return p.number(string(raw))
	case 'n':
		return nil, nil
	default:
		return kind == 't', nil
	}
}

func (p *parser) object(depth int) (any, error) {
	object := &Object{}
	for p.tokens.PeekKind() != '}' {
		key, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		value, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		object.Set(key.(string), value)
	}
	_, err := p.tokens.ReadToken()
	return object, err
}

func (p *parser) array(depth int) (any, error) {
	array := []any{}
	for p.tokens.PeekKind() != ']' {
		value, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	_, err := p.tokens.ReadToken()
	return array, err
}

func (p *parser) number(literal string) (any, error) {
	if strings.ContainsAny(literal, ".eE") {
		number, err := strconv.ParseFloat(literal, 64)
		if err != nil {
			return nil, p.fail("a number beyond the range of a double")
		}
		return number, nil
	}
	if number, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return number, nil
	}
	if len(strings.TrimPrefix(literal, "-")) > maxDigits {
		return nil, p.fail("an integer of more than %d digits", maxDigits)
	}
	number, _ := new(big.Int).SetString(literal, 10)
	return number, nil
}

// string reads what stands between quotes. The library would replace unpaired surrogates.
func (p *parser) string(raw []byte) (any, error) {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw), nil
	}
	var read []byte
	for len(raw) > 0 {
		r, size := decode(raw)
		switch {
		case size == 0:
			return nil, p.fail("a string that is not UTF-8")
		case raw[0] == '\\' && raw[1] == 'u':
			code, _ := strconv.ParseUint(string(raw[2:6]), 16, 16)
			r, size = rune(code), 6
		case raw[0] == '\\':
			const names, meant = "\"\\/bfnrt", "\"\\/\b\f\n\r\t"
			r, size = rune(meant[strings.IndexByte(names, raw[1])]), 2
		}
		read = appendRune(read, r)
		raw = raw[size:]
	}
	return string(read), nil
}

// decode reads a character of WTF-8; its size is 0 where there is none.
func decode(text []byte) (rune, int) {
	r, size := utf8.DecodeRune(text)
	if r != utf8.RuneError || size > 1 {
		return r, size
	}
	if len(text) >= 3 && text[0] == 0xED && text[1]&0xE0 == 0xA0 && text[2]&0xC0 == 0x80 {
		return 0xD000 | rune(text[1]&0x3F)<<6 | rune(text[2]&0x3F), 3
	}
	return 0, 0
}

// appendRune adds a character. A low surrogate after a high one makes one character with it.
func appendRune(text []byte, r rune) []byte {
	if r < 0xD800 || r > 0xDFFF {
		return utf8.AppendRune(text, r)
	}
	if n := len(text); r >= 0xDC00 && n >= 3 && text[n-3] == 0xED {
		if high, size := decode(text[n-3:]); size == 3 && high >= 0xD800 && high < 0xDC00 {
			return utf8.AppendRune(text[:n-3], 0x10000+(high-0xD800)<<10+(r-0xDC00))
		}
	}
	return append(text, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// ValidText says whether bytes are UTF-8 or WTF-8.
func ValidText(text []byte) bool {
	for len(text) > 0 {
		_, size := decode(text)
		if size == 0 {
			return false
		}
		text = text[size:]
	}
	return true
}
