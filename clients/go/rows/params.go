package rows

import (
	"fmt"
	"strings"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// readParams reads and checks a row's Responses parameters: what has the wrong type would go to the
// endpoint as it is, and fail there for every rollout of the task.
func readParams(row *jsonvalue.Object) (*responsesv1.ResponseParams, error) {
	key := conversationKey(row)
	value, found := row.Get(key)
	if !found {
		return nil, mistake(key, `the key is missing; add it, with at least {"input": …}, or add a "prompt"`)
	}
	inputKey := key
	if key == promptKey {
		params := &jsonvalue.Object{}
		params.Set("input", value)
		value = params
	} else {
		inputKey += ".input"
	}
	object, ok := value.(*jsonvalue.Object)
	if !ok {
		return nil, mistake(paramsKey, "must be an object, not %s", jsonvalue.NameOf(value))
	}
	if err := checkInput(object, inputKey); err != nil {
		return nil, err
	}
	for key, kinds := range paramKinds {
		if value, _ := object.Get(key); value != nil && !kinds.take(value) {
			return nil, mistake(paramsKey+"."+key, "must be %s, not %s", kinds.noun, jsonvalue.NameOf(value))
		}
	}
	params, err := codec.ParamsFromValue(object)
	if err != nil {
		return nil, mistake(paramsKey, "%v", err)
	}
	return params, nil
}

type paramKind struct {
	noun string
	take func(any) bool
}

func isA[T any](value any) bool { _, ok := value.(T); return ok }

var (
	aText   = paramKind{"a string", isA[string]}
	anyNum  = paramKind{"a number", func(v any) bool { return isA[int64](v) || isA[float64](v) }}
	anObj   = paramKind{"an object", isA[*jsonvalue.Object]}
	aList   = paramKind{"a list", isA[[]any]}
	aBool   = paramKind{"true or false", isA[bool]}
	aLimit  = paramKind{"a whole number of at least 1", isLimit}
	aChoice = paramKind{"a string or an object", func(v any) bool { return aText.take(v) || anObj.take(v) }}

	paramKinds = map[string]paramKind{
		"model": aText, "instructions": aText, "previous_response_id": aText,
		"temperature": anyNum, "top_p": anyNum,
		"text": anObj, "reasoning": anObj, "metadata": anObj,
		"max_output_tokens": aLimit, "parallel_tool_calls": aBool,
		"tool_choice": aChoice, "tools": aList,
	}
)

func isLimit(value any) bool {
	limit, ok := value.(int64)
	return ok && limit >= 1
}

// checkInput checks the prompt, which stands under this key in the row.
func checkInput(params *jsonvalue.Object, key string) error {
	given, found := params.Get("input")
	if !found {
		return mistake(key, "the key is missing; give a text or a list of messages")
	}
	switch given := given.(type) {
	case string:
		if strings.TrimSpace(given) == "" {
			return mistake(key, "is empty; give a text, or a list of items")
		}
	case []any:
		for i, item := range given {
			if !isA[*jsonvalue.Object](item) {
				return mistake(fmt.Sprintf("%s[%d]", key, i), "must be an object, not %s", jsonvalue.NameOf(item))
			}
		}
	default:
		return mistake(key, "must be a string or a list of items, not %s", jsonvalue.NameOf(given))
	}
	return nil
}
