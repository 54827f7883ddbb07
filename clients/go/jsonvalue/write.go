package jsonvalue

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Write returns a value as compact JSON in UTF-8; an unpaired surrogate becomes an escape. It takes
// the values that Parse gives, and int, uint32 and uint64. NaN, infinities and any other type are
// errors.
func Write(value any) ([]byte, error) {
	return appendValue(nil, value)
}

func appendValue(out []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return strconv.AppendBool(out, value), nil
	case string:
		return appendString(out, value), nil
	case int:
		return strconv.AppendInt(out, int64(value), 10), nil
	case int64:
		return strconv.AppendInt(out, value, 10), nil
	case uint32:
		return strconv.AppendUint(out, uint64(value), 10), nil
	case uint64:
		return strconv.AppendUint(out, value, 10), nil
	case *big.Int:
		return value.Append(out, 10), nil
	case float64:
		return appendReal(out, value)
	case []any:
		return appendArray(out, value)
	case *Object:
		return appendObject(out, value)
	default:
		return nil, fmt.Errorf("%T is not a JSON type", value)
	}
}

func appendArray(out []byte, array []any) ([]byte, error) {
	out = append(out, '[')
	for i, element := range array {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendValue(out, element); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

func appendObject(out []byte, object *Object) ([]byte, error) {
	out = append(out, '{')
	first := true
	for key, value := range object.All() {
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(appendString(out, key), ':')
		var err error
		if out, err = appendValue(out, value); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendReal writes a real so that it stays one when it is read again, and as clients in other
// languages do: an id is made of what is written.
func appendReal(out []byte, real float64) ([]byte, error) {
	if math.IsNaN(real) || math.IsInf(real, 0) {
		return nil, fmt.Errorf("%v is not a JSON number", real)
	}
	format := byte('f')
	if size := math.Abs(real); size != 0 && (size < 1e-5 || size >= 1e16) {
		format = 'e'
	}
	text := shorterExponent.Replace(strconv.FormatFloat(real, format, -1, 64))
	out = append(out, text...)
	if !strings.ContainsAny(text, ".e") {
		out = append(out, ".0"...)
	}
	return out, nil
}

// Exponents have no leading zero.
var shorterExponent = strings.NewReplacer("e+0", "e+", "e-0", "e-")

const shortEscapes = "\b\t\n\f\r\"\\"

func appendString(out []byte, text string) []byte {
	out = append(out, '"')
	for len(text) > 0 {
		if c := text[0]; c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			out, text = append(out, c), text[1:]
			continue
		}
		r, size := decode([]byte(text[:min(utf8.UTFMax, len(text))]))
		if size == 0 { // not text at all: the byte is replaced
			r, size = utf8.RuneError, 1
		}
		if short := strings.IndexRune(shortEscapes, r); short >= 0 {
			out = append(out, '\\', `btnfr"\`[short])
		} else if r < 0x20 || (r >= 0xD800 && r <= 0xDFFF) || (r == utf8.RuneError && size == 1) {
			out = fmt.Appendf(out, "\\u%04x", r)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return append(out, '"')
}
