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
	params := &responsesv1.ResponseParams{}
	if err := codec.FromValue(object, params); err != nil {
		return nil, mistake(paramsKey, "%v", err)
	}
	return params, checkTypes(params)
}

// checkTypes finds keys of the API whose values no typed field took.
func checkTypes(params *responsesv1.ResponseParams) error {
	overlay := &jsonvalue.Object{}
	if text := params.GetOverlayJson(); len(text) > 0 {
		var err error
		if overlay, err = jsonvalue.ParseObject(text); err != nil {
			return err
		}
	}
	known := codec.Keys(params)
	for key, value := range overlay.All() {
		if known[key] && value != nil {
			return mistake(paramsKey+"."+key, "the Responses API does not take %s here", jsonvalue.NameOf(value))
		}
	}
	if params.MaxOutputTokens != nil && params.GetMaxOutputTokens() < 1 {
		return mistake(paramsKey+".max_output_tokens", "must be at least 1")
	}
	return nil
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
			if _, ok := item.(*jsonvalue.Object); !ok {
				return mistake(fmt.Sprintf("%s[%d]", key, i), "must be an object, not %s", jsonvalue.NameOf(item))
			}
		}
	default:
		return mistake(key, "must be a string or a list of items, not %s", jsonvalue.NameOf(given))
	}
	return nil
}
