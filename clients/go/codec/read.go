package codec

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/json/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// read reads a value into an empty message of any shape, and says whether it fits.
func read(value any, into protoreflect.Message) (bool, error) {
	plan := planOf(into.Descriptor())
	switch plan.shape {
	case jsonv1.Shape_SHAPE_UNION:
		return true, readUnion(value, into)
	case jsonv1.Shape_SHAPE_LIST:
		return readField(plan.fields[0], value, into)
	case jsonv1.Shape_SHAPE_NUMBER:
		for _, member := range plan.fields {
			_, isReal := value.(float64)
			if isReal == (member.Kind() == protoreflect.DoubleKind) {
				return readField(member, value, into)
			}
		}
		return false, nil
	case jsonv1.Shape_SHAPE_WHOLE:
		return true, readWhole(value, into)
	default:
		object, ok := value.(*jsonvalue.Object)
		if !ok {
			return false, nil
		}
		return true, readObject(plan, object.Clone(), into)
	}
}

func readWhole(value any, into protoreflect.Message) error {
	fields := into.Descriptor().Fields()
	if object, ok := value.(*jsonvalue.Object); ok {
		kind, _ := object.Get("type")
		if text, ok := kind.(string); ok && utf8.ValidString(text) {
			into.Set(fields.ByName("type"), protoreflect.ValueOfString(text))
		}
	}
	text, err := write(value)
	into.Set(fields.ByName("json"), protoreflect.ValueOfBytes(text))
	return err
}

// readUnion reads into the member that the object's `type` names, else into the one that takes all.
func readUnion(value any, into protoreflect.Message) error {
	object, _ := value.(*jsonvalue.Object)
	var kind any
	typed, hasRole := false, false
	if object != nil {
		kind, typed = object.Get("type")
		hasRole = object.Has("role")
	}
	for _, member := range planOf(into.Descriptor()).fields {
		plan := planOf(member.Message())
		untyped := !typed && hasRole && plan.typeOmitted != nil
		if plan.shape == jsonv1.Shape_SHAPE_WHOLE {
			return readWhole(value, into.Mutable(member.FieldDescriptor).Message())
		}
		if !untyped && kind != string(member.Name()) {
			continue
		}
		inner := into.Mutable(member.FieldDescriptor).Message()
		if untyped {
			inner.Set(plan.typeOmitted, protoreflect.ValueOfBool(true))
		}
		rest := object.Clone()
		rest.Delete("type")
		return readObject(plan, rest, inner)
	}
	return problem("the union takes no %s", jsonvalue.NameOf(value))
}

// readObject takes key after key out of an object; the rest is the overlay.
func readObject(plan *plan, rest *jsonvalue.Object, into protoreflect.Message) error {
	for _, one := range plan.fields {
		if of := oneofOf(one.FieldDescriptor); of != nil && into.WhichOneof(of) != nil {
			continue
		}
		taken, err := one.take(rest, into)
		if err != nil {
			return within(one.key, err)
		}
		if one.omitted != nil && !taken {
			into.Set(one.omitted, protoreflect.ValueOfBool(true))
		}
	}
	if plan.overlay == nil || rest.Len() == 0 {
		return nil
	}
	text, err := write(rest)
	into.Set(plan.overlay, protoreflect.ValueOfBytes(text))
	return err
}

// take moves the value of a field's key from the object into the message, where it fits.
func (f *field) take(rest *jsonvalue.Object, into protoreflect.Message) (bool, error) {
	key := f.key
	if f.GetWithin() != "" {
		key = f.GetWithin()
	}
	value, found := rest.Get(key)
	if f.GetWithin() != "" {
		outer, ok := value.(*jsonvalue.Object)
		found = ok && outer.Len() == 1 && outer.Has(f.key)
		if found {
			value, _ = outer.Get(f.key)
		}
	}
	if !found {
		return false, nil
	}
	fits, err := f.read(value, into)
	if fits && err == nil {
		rest.Delete(key)
	}
	return fits, err
}

func (f *field) read(value any, into protoreflect.Message) (bool, error) {
	if f.GetMarker() == jsonv1.Marker_MARKER_EMPTY_LIST {
		list, ok := value.([]any)
		if !ok || len(list) > 0 {
			return false, nil
		}
		value = true
	}
	if text, ok := value.(string); ok && f.text != nil {
		if utf8.ValidString(text) {
			into.Set(f.text, protoreflect.ValueOfString(text))
		}
		return utf8.ValidString(text), nil
	}
	if partType := f.GetPartType(); partType != "" {
		var fits bool
		if value, fits = textsOf(value, partType); !fits {
			return false, nil
		}
	}
	return readField(f, value, into)
}

// textsOf gives the texts of a list whose parts are all of this type and hold a text and no more.
func textsOf(value any, partType string) (any, bool) {
	parts, isList := value.([]any)
	texts := make([]any, len(parts))
	for i, part := range parts {
		object, ok := part.(*jsonvalue.Object)
		if !ok || object.Len() != 2 {
			return nil, false
		}
		kind, _ := object.Get("type")
		if texts[i], ok = object.Get("text"); !ok || kind != partType {
			return nil, false
		}
	}
	return texts, isList
}

// readField sets a field where the value fits.
func readField(f *field, value any, into protoreflect.Message) (bool, error) {
	switch {
	case f.IsMap():
		object, ok := value.(*jsonvalue.Object)
		if !ok {
			return false, nil
		}
		texts := into.NewField(f.FieldDescriptor)
		for key, member := range object.All() {
			text, ok := member.(string)
			if !ok || !utf8.ValidString(text) || !utf8.ValidString(key) {
				return false, nil
			}
			texts.Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(text))
		}
		into.Set(f.FieldDescriptor, texts)
		return true, nil
	case f.IsList():
		values, ok := value.([]any)
		if !ok {
			return false, nil
		}
		list := into.NewField(f.FieldDescriptor)
		for i, element := range values {
			one, err := f.readSingle(element, list.List().NewElement())
			if err != nil {
				return true, within(fmt.Sprintf("[%d]", i), err)
			}
			if !one.IsValid() {
				return false, nil
			}
			list.List().Append(one)
		}
		into.Set(f.FieldDescriptor, list)
		return true, nil
	default:
		one, err := f.readSingle(value, into.NewField(f.FieldDescriptor))
		if err == nil && one.IsValid() {
			into.Set(f.FieldDescriptor, one)
		}
		return one.IsValid(), err
	}
}

var none protoreflect.Value

// readSingle reads one value of a field; it is not valid where it does not fit. Empty is a new value of
// the field's type.
func (f *field) readSingle(value any, empty protoreflect.Value) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		fits, err := read(value, empty.Message())
		if !fits {
			return none, err
		}
		return empty, err
	case protoreflect.BytesKind:
		return f.readBytes(value)
	case protoreflect.StringKind:
		if text, ok := value.(string); ok && utf8.ValidString(text) {
			return protoreflect.ValueOfString(text), nil
		}
	case protoreflect.BoolKind:
		if said, ok := value.(bool); ok {
			return protoreflect.ValueOfBool(said), nil
		}
	case protoreflect.EnumKind:
		return f.readEnum(value), nil
	default:
		return f.readNumber(value), nil
	}
	return none, nil
}

// readEnum reads a name, or the number of a value that this contract does not have.
func (f *field) readEnum(value any) protoreflect.Value {
	text, _ := value.(string)
	if known := f.Enum().Values().ByName(protoreflect.Name(prefixOf(f.Enum()) + text)); known != nil {
		return protoreflect.ValueOfEnum(known.Number())
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return none
	}
	return protoreflect.ValueOfEnum(protoreflect.EnumNumber(number))
}

func (f *field) readNumber(value any) protoreflect.Value {
	integer, isInteger := value.(int64)
	number, isReal := value.(float64)
	big, isBig := value.(*big.Int)
	switch kind := f.Kind(); {
	case kind == protoreflect.DoubleKind && isReal:
		return protoreflect.ValueOfFloat64(number)
	// The largest one becomes 2^63, which some machines convert back to it.
	case kind == protoreflect.DoubleKind && isInteger && integer != math.MaxInt64 &&
		int64(float64(integer)) == integer:
		return protoreflect.ValueOfFloat64(float64(integer))
	case kind == protoreflect.Int64Kind && isInteger:
		return protoreflect.ValueOfInt64(integer)
	case kind == protoreflect.Int32Kind && isInteger && integer == int64(int32(integer)):
		return protoreflect.ValueOfInt32(int32(integer))
	case kind == protoreflect.Uint32Kind && isInteger && integer == int64(uint32(integer)):
		return protoreflect.ValueOfUint32(uint32(integer))
	case kind == protoreflect.Uint64Kind && isInteger && integer >= 0:
		return protoreflect.ValueOfUint64(uint64(integer))
	case kind == protoreflect.Uint64Kind && isBig && big.IsUint64():
		return protoreflect.ValueOfUint64(big.Uint64())
	default:
		return none
	}
}

func (f *field) readBytes(value any) (protoreflect.Value, error) {
	text, isText := value.(string)
	_, isObject := value.(*jsonvalue.Object)
	if f.holdsJSON {
		takes := f.GetTakes()
		if takes != jsonv1.JsonValues_JSON_VALUES_UNSPECIFIED && !isObject &&
			(takes != jsonv1.JsonValues_JSON_VALUES_OBJECT_OR_STRING || !isText) {
			return none, nil
		}
		written, err := write(value)
		return protoreflect.ValueOfBytes(written), err
	}
	var held []byte
	var err error
	switch form := f.GetBytes(); {
	case form == jsonv1.BytesForm_BYTES_FORM_INT32, form == jsonv1.BytesForm_BYTES_FORM_FLOAT32:
		return packed(value, form), nil
	case !isText:
		return none, nil
	case form == jsonv1.BytesForm_BYTES_FORM_HEX:
		held, err = decoded(text, hex.DecodeString, hex.EncodeToString)
	case form == jsonv1.BytesForm_BYTES_FORM_BASE64:
		held, err = decoded(text, base64.StdEncoding.DecodeString, base64.StdEncoding.EncodeToString)
	default:
		held = []byte(text)
	}
	if err != nil {
		return none, nil
	}
	return protoreflect.ValueOfBytes(held), nil
}

// decoded gives the bytes of a text, which must be the one that encoding them makes: a decoder takes more.
func decoded(text string, decode func(string) ([]byte, error), encode func([]byte) string) ([]byte, error) {
	held, err := decode(text)
	if err == nil && encode(held) != text {
		err = problem("not as it is written")
	}
	return held, err
}

// packed packs a list of numbers; null stands for a real that is not finite.
func packed(value any, form jsonv1.BytesForm) protoreflect.Value {
	list, ok := value.([]any)
	held := make([]byte, 0, width*len(list))
	for _, element := range list {
		var bits uint32
		switch number := element.(type) {
		case int64:
			if form == jsonv1.BytesForm_BYTES_FORM_FLOAT32 {
				bits = math.Float32bits(float32(float64(number)))
			} else {
				ok = ok && number >= 0 && number <= math.MaxInt32
				bits = uint32(number)
			}
		case float64:
			ok = ok && form == jsonv1.BytesForm_BYTES_FORM_FLOAT32
			bits = math.Float32bits(float32(number))
		case nil:
			ok = ok && form == jsonv1.BytesForm_BYTES_FORM_FLOAT32
			bits = math.Float32bits(float32(math.NaN()))
		default:
			ok = false
		}
		held = binary.LittleEndian.AppendUint32(held, bits)
	}
	if !ok {
		return none
	}
	return protoreflect.ValueOfBytes(held)
}
