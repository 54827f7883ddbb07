// Package jsonvalue reads and writes JSON without loss: integers of any size stay apart from reals,
// objects keep the order of their keys, and texts keep unpaired surrogates, which the standard
// library replaces.
//
// A value is one of
//
//	nil, bool, string      as in encoding/json; an unpaired surrogate is in a string
//	                       as its three bytes of WTF-8, so that utf8.ValidString is false
//	int64, *big.Int        an integer literal, the latter beyond 64 bits only
//	float64                a literal with a fraction or an exponent; always finite
//	[]any, *Object         an array, an object
package jsonvalue

import (
	"iter"
	"maps"
	"slices"
)

// MaxDepth is how many levels of objects and arrays a document may nest.
const MaxDepth = 240

// Object is a JSON object whose keys keep their order. The zero value is an empty object.
type Object struct {
	keys   []string
	values map[string]any
}

// NewObject returns an object of alternating keys and values.
func NewObject(pairs ...any) *Object {
	object := &Object{}
	for i := 0; i+1 < len(pairs); i += 2 {
		object.Set(pairs[i].(string), pairs[i+1])
	}
	return object
}

// Len returns the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// Get returns the value of a key, and whether there is one.
func (o *Object) Get(key string) (any, bool) {
	value, found := o.values[key]
	return value, found
}

// Has reports whether the key exists.
func (o *Object) Has(key string) bool {
	_, found := o.values[key]
	return found
}

// Set sets the value of a key; a new key comes last.
func (o *Object) Set(key string, value any) {
	if o.values == nil {
		o.values = make(map[string]any)
	}
	if _, found := o.values[key]; !found {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
}

// Delete removes a key, if it exists.
func (o *Object) Delete(key string) {
	if _, found := o.values[key]; !found {
		return
	}
	delete(o.values, key)
	o.keys = slices.DeleteFunc(o.keys, func(one string) bool { return one == key })
}

// All iterates over keys and values in order.
func (o *Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, key := range o.keys {
			if !yield(key, o.values[key]) {
				return
			}
		}
	}
}

// Clone returns a copy that shares the values.
func (o *Object) Clone() *Object {
	clone := &Object{}
	clone.Merge(o)
	return clone
}

// Merge sets all keys of another object.
func (o *Object) Merge(other *Object) {
	for key, value := range other.All() {
		o.Set(key, value)
	}
}

// Sorted returns the value with the keys of its objects in the order of their code points, so that
// equal documents are written as equal bytes.
func Sorted(value any) any {
	switch value := value.(type) {
	case *Object:
		made := &Object{}
		for _, key := range slices.Sorted(maps.Keys(value.values)) {
			made.Set(key, Sorted(value.values[key]))
		}
		return made
	case []any:
		made := make([]any, len(value))
		for i, element := range value {
			made[i] = Sorted(element)
		}
		return made
	default:
		return value
	}
}

// NameOf returns a value's type for error messages.
func NameOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case *Object:
		return "an object"
	default:
		return "a number"
	}
}
