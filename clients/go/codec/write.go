package codec

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"

	"golang.org/x/text/encoding/unicode"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/json/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// valueOf writes a message of any shape.
func valueOf(message protoreflect.Message) (any, error) {
	plan := planOf(message.Descriptor())
	switch plan.shape {
	case jsonv1.Shape_SHAPE_UNION:
		return unionValue(message)
	case jsonv1.Shape_SHAPE_LIST:
		return fieldValue(plan.fields[0], message, "")
	case jsonv1.Shape_SHAPE_NUMBER:
		return fieldValue(&field{FieldDescriptor: numberOf(message)}, message, "")
	case jsonv1.Shape_SHAPE_WHOLE:
		value, err := parse(message.Get(message.Descriptor().Fields().ByName("json")).Bytes())
		return value, within("json", err)
	default:
		return objectValue(plan, message, &jsonvalue.Object{})
	}
}

// numberOf gives the member of a number that is set, nil for none.
func numberOf(message protoreflect.Message) protoreflect.FieldDescriptor {
	return message.WhichOneof(message.Descriptor().Oneofs().Get(0))
}

func unionValue(message protoreflect.Message) (any, error) {
	member := message.WhichOneof(message.Descriptor().Oneofs().Get(0))
	if member == nil {
		return nil, problem("holds a kind that this version of the contract does not know")
	}
	inner := message.Get(member).Message()
	plan := planOf(inner.Descriptor())
	if plan.shape == jsonv1.Shape_SHAPE_WHOLE {
		return valueOf(inner)
	}
	out := &jsonvalue.Object{}
	if plan.typeOmitted == nil || !inner.Get(plan.typeOmitted).Bool() {
		out.Set("type", string(member.Name()))
	}
	return objectValue(plan, inner, out)
}

// objectValue adds a message's fields to an object.
func objectValue(plan *plan, message protoreflect.Message, out *jsonvalue.Object) (any, error) {
	for _, one := range plan.fields {
		said, value, err := one.valueIn(message)
		if err != nil {
			return nil, within(one.key, err)
		}
		if !said {
			continue
		}
		key := one.key
		if outer := one.GetWithin(); outer != "" {
			key, value = outer, jsonvalue.NewObject(key, value)
		}
		out.Set(key, value)
	}
	if plan.overlay == nil {
		return out, nil
	}
	if overlay := message.Get(plan.overlay).Bytes(); len(overlay) > 0 {
		object, err := jsonvalue.ParseObject(overlay)
		if err != nil {
			return nil, within(overlayName, err)
		}
		out.Merge(object)
	}
	return out, nil
}

// valueIn gives a field's value, and whether it is written.
func (f *field) valueIn(message protoreflect.Message) (said bool, value any, err error) {
	has := message.Has(f.FieldDescriptor)
	switch {
	case f.GetMarker() == jsonv1.Marker_MARKER_EMPTY_LIST:
		return has, []any{}, nil
	case f.text != nil && message.Has(f.text):
		if has {
			return false, nil, problem("given both as text and as a list")
		}
		return true, message.Get(f.text).String(), nil
	case f.omitted != nil && !has:
		return !message.Get(f.omitted).Bool(), []any{}, nil
	case !has && f.GetAlways() && f.HasPresence():
		return true, nil, nil
	case !has && !f.GetAlways():
		return false, nil, nil
	case has && f.isNumber() && numberOf(message.Get(f.FieldDescriptor).Message()) == nil:
		return false, nil, nil
	}
	value, err = fieldValue(f, message, f.GetPartType())
	return true, value, err
}

func (f *field) isNumber() bool {
	return !f.IsList() && f.Message() != nil && planOf(f.Message()).shape == jsonv1.Shape_SHAPE_NUMBER
}

// fieldValue writes what a field holds, be it empty.
func fieldValue(f *field, message protoreflect.Message, partType string) (any, error) {
	if f.FieldDescriptor == nil {
		return nil, problem("holds no number")
	}
	held := message.Get(f.FieldDescriptor)
	switch {
	case f.IsMap():
		texts := make(map[string]any)
		held.Map().Range(func(key protoreflect.MapKey, text protoreflect.Value) bool {
			texts[key.String()] = text.String()
			return true
		})
		out := &jsonvalue.Object{}
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			out.Set(key, texts[key])
		}
		return out, nil
	case f.IsList():
		list := make([]any, held.List().Len())
		for i := range list {
			value, err := f.single(held.List().Get(i))
			if err != nil {
				return nil, within(fmt.Sprintf("[%d]", i), err)
			}
			list[i] = value
		}
		return list, nil
	case partType != "":
		texts, err := valueOf(held.Message())
		if err != nil {
			return nil, err
		}
		for i, text := range texts.([]any) {
			texts.([]any)[i] = jsonvalue.NewObject("type", partType, "text", text)
		}
		return texts, nil
	default:
		return f.single(held)
	}
}

// single writes one value.
func (f *field) single(held protoreflect.Value) (any, error) {
	switch value := held.Interface().(type) {
	case protoreflect.Message:
		return valueOf(value)
	case protoreflect.EnumNumber:
		if known := f.Enum().Values().ByNumber(value); known != nil {
			return string(known.Name())[len(prefixOf(f.Enum())):], nil
		}
		return fmt.Sprint(value), nil
	case []byte:
		return f.bytesValue(value)
	case int32:
		return int64(value), nil
	case uint64:
		if value > math.MaxInt64 {
			return new(big.Int).SetUint64(value), nil
		}
		return int64(value), nil
	case uint32:
		return int64(value), nil
	case float32:
		return real(float64(value))
	case float64:
		return real(value)
	default: // bool, int64, string
		return value, nil
	}
}

func real(number float64) (any, error) {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return nil, problem("%v is not a JSON number", number)
	}
	return number, nil
}

func (f *field) bytesValue(held []byte) (any, error) {
	if f.holdsJSON {
		if len(held) == 0 && !f.HasPresence() {
			return &jsonvalue.Object{}, nil
		}
		return parse(held)
	}
	switch f.GetBytes() {
	case jsonv1.BytesForm_BYTES_FORM_INT32:
		return numbers(held, func(bits uint32) (any, error) {
			if bits > math.MaxInt32 {
				return nil, problem("%d is negative", int32(bits))
			}
			return int64(bits), nil
		})
	case jsonv1.BytesForm_BYTES_FORM_FLOAT32:
		return numbers(held, func(bits uint32) (any, error) {
			value, _ := real(float64(math.Float32frombits(bits)))
			return value, nil
		})
	case jsonv1.BytesForm_BYTES_FORM_HEX:
		return hex.EncodeToString(held), nil
	case jsonv1.BytesForm_BYTES_FORM_BASE64:
		return base64.StdEncoding.EncodeToString(held), nil
	case jsonv1.BytesForm_BYTES_FORM_CUT_TEXT:
		text, err := unicode.UTF8.NewDecoder().Bytes(held)
		return string(text), err
	default:
		if !jsonvalue.ValidText(held) {
			return nil, problem("not UTF-8")
		}
		return string(held), nil
	}
}

// Numbers in bytes have four each.
const width = 4

func numbers(packed []byte, convert func(uint32) (any, error)) (any, error) {
	if len(packed)%width != 0 {
		return nil, problem("%d bytes are not whole numbers of %d bytes", len(packed), width)
	}
	list := make([]any, len(packed)/width)
	for i := range list {
		number, err := convert(binary.LittleEndian.Uint32(packed[i*width:]))
		if err != nil {
			return nil, within(fmt.Sprintf("[%d]", i), err)
		}
		list[i] = number
	}
	return list, nil
}
