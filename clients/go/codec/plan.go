package codec

import (
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/json/v1"
)

// plan is what the descriptor of a message says about its JSON.
type plan struct {
	shape   jsonv1.Shape
	fields  []*field // in the order of their numbers, without overlay_json
	overlay protoreflect.FieldDescriptor
	// typeOmitted marks a member of a union whose document had no `type`.
	typeOmitted protoreflect.FieldDescriptor
}

// field is one field and what is said of it.
type field struct {
	protoreflect.FieldDescriptor
	*jsonv1.FieldJson
	key string
	// holdsJSON: it is called `x_json`.
	holdsJSON bool
	// omitted marks that the document had no list here.
	omitted protoreflect.FieldDescriptor
	// text is the field that takes the value when it is a string and no list.
	text protoreflect.FieldDescriptor
}

const overlayName = "overlay_json"

var plans sync.Map // of *plan by descriptor

func planOf(descriptor protoreflect.MessageDescriptor) *plan {
	if known, found := plans.Load(descriptor); found {
		return known.(*plan)
	}
	made := &plan{shape: optionsOf(descriptor).GetShape()}
	byName := make(map[protoreflect.Name]*field)
	for i := range descriptor.Fields().Len() {
		one := newField(descriptor.Fields().Get(i))
		switch {
		case one.Name() == overlayName:
			made.overlay = one.FieldDescriptor
		case one.GetMarker() == jsonv1.Marker_MARKER_TYPE_OMITTED:
			made.typeOmitted = one.FieldDescriptor
		default:
			byName[one.Name()] = one
			made.fields = append(made.fields, one)
		}
	}
	for _, one := range made.fields {
		if one.GetMarker() == jsonv1.Marker_MARKER_LIST_OMITTED {
			byName[protoreflect.Name(one.key)].omitted = one.FieldDescriptor
		}
		if list := one.GetFormOf(); list != "" {
			byName[protoreflect.Name(list)].text = one.FieldDescriptor
		}
	}
	// Those are read and written with the list.
	made.fields = slices.DeleteFunc(made.fields, func(one *field) bool {
		return one.GetMarker() == jsonv1.Marker_MARKER_LIST_OMITTED || one.GetFormOf() != ""
	})
	slices.SortFunc(made.fields, func(a, b *field) int { return int(a.Number()) - int(b.Number()) })
	known, _ := plans.LoadOrStore(descriptor, made)
	return known.(*plan)
}

func optionsOf(descriptor protoreflect.MessageDescriptor) *jsonv1.MessageJson {
	return proto.GetExtension(descriptor.Options(), jsonv1.E_Message).(*jsonv1.MessageJson)
}

func newField(descriptor protoreflect.FieldDescriptor) *field {
	said := proto.GetExtension(descriptor.Options(), jsonv1.E_Field).(*jsonv1.FieldJson)
	key, holdsJSON := strings.CutSuffix(string(descriptor.Name()), "_json")
	switch said.GetMarker() {
	case jsonv1.Marker_MARKER_LIST_OMITTED:
		key = strings.TrimSuffix(key, "_omitted")
	case jsonv1.Marker_MARKER_EMPTY_LIST:
		key = strings.TrimSuffix(key, "_empty")
	}
	if said.GetKey() != "" {
		key = said.GetKey()
	} else if of := oneofOf(descriptor); of != nil {
		key = string(of.Name())
	}
	return &field{FieldDescriptor: descriptor, FieldJson: said, key: key, holdsJSON: holdsJSON}
}

// oneofOf gives the oneof that a field is of in the contract's text, nil for none.
func oneofOf(descriptor protoreflect.FieldDescriptor) protoreflect.OneofDescriptor {
	if of := descriptor.ContainingOneof(); of != nil && !of.IsSynthetic() {
		return of
	}
	return nil
}

// Keys are the keys that an object of this message has of its own.
func Keys(message proto.Message) map[string]bool {
	keys := make(map[string]bool)
	for _, one := range planOf(message.ProtoReflect().Descriptor()).fields {
		keys[one.key] = true
	}
	return keys
}

// prefixOf gives what the names of an enum's values begin with.
func prefixOf(enum protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(enum.Values().ByNumber(0).Name()), "UNSPECIFIED")
}
