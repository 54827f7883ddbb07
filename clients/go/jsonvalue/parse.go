package jsonvalue

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Integers of more digits are refused: their conversion takes quadratic time.
const maxDigits = 4300

// SyntaxError says why a text is not JSON that can be read.
type SyntaxError struct {
	// Offset is the byte at which it was found.
	Offset int
	// Problem is a short phrase.
	Problem string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not valid JSON at byte %d: %s", e.Offset, e.Problem)
}

// Parse reads one JSON text, which is UTF-8 or WTF-8. Of several equal keys the last one counts.
// The error is a *SyntaxError.
func Parse(text []byte) (any, error) {
	p := parser{text: text}
	value, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(text) {
		return nil, p.fail("more text after the value")
	}
	return value, nil
}

// ParseObject reads a text that must hold an object.
func ParseObject(text []byte) (*Object, error) {
	value, err := Parse(text)
	if err != nil {
		return nil, err
	}
	object, ok := value.(*Object)
	if !ok {
		return nil, &SyntaxError{Problem: NameOf(value) + " where an object is required"}
	}
	return object, nil
}

type parser struct {
	text []byte
	at   int
}

func (p *parser) fail(problem string) error {
	return &SyntaxError{Offset: p.at, Problem: problem}
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next returns the next byte that is no white space, 0 at the end, and stays before it.
func (p *parser) next() byte {
	p.space()
	if p.at >= len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *parser) value(depth int) (any, error) {
	switch c := p.next(); {
	case c == '{' || c == '[':
		if depth >= MaxDepth {
			return nil, p.fail(fmt.Sprintf("nested deeper than %d levels", MaxDepth))
		}
		p.at++
		if c == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case c == '"':
		return p.string()
	case c == '-' || (c >= '0' && c <= '9'):
		return p.number()
	case c == 't':
		return true, p.literal("true")
	case c == 'f':
		return false, p.literal("false")
	case c == 'n':
		return nil, p.literal("null")
	case c == 0 && p.at >= len(p.text):
		return nil, p.fail("the text ends where a value is due")
	default:
		return nil, p.fail("no value begins like this")
	}
}

func (p *parser) literal(word string) error {
	end := p.at + len(word)
	if end > len(p.text) || string(p.text[p.at:end]) != word {
		return p.fail("no value begins like this")
	}
	p.at = end
	return nil
}

func (p *parser) object(depth int) (any, error) {
	object := &Object{}
	if p.next() == '}' {
		p.at++
		return object, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.fail("a key in quotes is due")
		}
		key, err := p.string()
		if err != nil {
			return nil, err
		}
		if p.next() != ':' {
			return nil, p.fail("':' is due")
		}
		p.at++
		value, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		object.Set(key, value)
		more, err := p.more('}')
		if err != nil || !more {
			return object, err
		}
	}
}

func (p *parser) array(depth int) (any, error) {
	array := []any{}
	if p.next() == ']' {
		p.at++
		return array, nil
	}
	for {
		value, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
		more, err := p.more(']')
		if err != nil || !more {
			return array, err
		}
	}
}

// more reads ',' (true) or the closing bracket (false).
func (p *parser) more(closing byte) (bool, error) {
	switch p.next() {
	case ',':
		p.at++
		return true, nil
	case closing:
		p.at++
		return false, nil
	default:
		return false, p.fail(fmt.Sprintf("',' or '%c' is due", closing))
	}
}

func (p *parser) number() (any, error) {
	start := p.at
	if p.peek() == '-' {
		p.at++
	}
	if p.peek() == '0' {
		p.at++
	} else if p.digits() == 0 {
		return nil, p.fail("a digit is due")
	}
	real := false
	if p.peek() == '.' {
		real = true
		p.at++
		if p.digits() == 0 {
			return nil, p.fail("a digit is due")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		real = true
		p.at++
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		if p.digits() == 0 {
			return nil, p.fail("a digit is due")
		}
	}
	return p.numberOf(string(p.text[start:p.at]), real)
}

func (p *parser) numberOf(literal string, real bool) (any, error) {
	if real {
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
		return nil, p.fail(fmt.Sprintf("an integer of more than %d digits", maxDigits))
	}
	number, _ := new(big.Int).SetString(literal, 10)
	return number, nil
}

func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) digits() int {
	start := p.at
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.at++
	}
	return p.at - start
}

// string reads a text, of which the opening quote is next.
func (p *parser) string() (string, error) {
	p.at++
	var read []byte
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == '"':
			p.at++
			return string(read), nil
		case c == '\\':
			var err error
			if read, err = p.escape(read); err != nil {
				return "", err
			}
		case c < 0x20:
			return "", p.fail("a control character in a string")
		case c < utf8.RuneSelf:
			read = append(read, c)
			p.at++
		default:
			r, size := decode(p.text[p.at:])
			if size == 0 {
				return "", p.fail("not UTF-8")
			}
			read = appendRune(read, r)
			p.at += size
		}
	}
	return "", p.fail("a string without an end")
}

func (p *parser) escape(read []byte) ([]byte, error) {
	p.at++
	c := p.peek()
	if c == 'u' {
		if p.at+5 > len(p.text) {
			return nil, p.fail("four hexadecimal digits are due")
		}
		code, err := strconv.ParseUint(string(p.text[p.at+1:p.at+5]), 16, 16)
		if err != nil {
			return nil, p.fail("four hexadecimal digits are due")
		}
		p.at += 5
		return appendRune(read, rune(code)), nil
	}
	const names, meant = "\"\\/bfnrt", "\"\\/\b\f\n\r\t"
	for i := range len(names) {
		if names[i] == c {
			p.at++
			return append(read, meant[i]), nil
		}
	}
	return nil, p.fail("an unknown escape")
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
