package codec

import (
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// ResponseFromJSON reads the body that `POST /v1/responses` returns.
func ResponseFromJSON(text []byte) (*responsesv1.Response, error) {
	rest, err := parseObject(text, "a response")
	if err != nil {
		return nil, err
	}
	response := &responsesv1.Response{
		Id:     takeString(rest, "id"),
		Model:  takeString(rest, "model"),
		Status: takeString(rest, "status"),
	}
	output, _ := rest.Get("output")
	if list, ok := output.([]any); ok {
		rest.Delete("output")
		if response.Output, err = ItemsFromValue(list); err != nil {
			return nil, within("output", err)
		}
	} else {
		response.OutputOmitted = true
	}
	if usage := takeObject(rest, "usage"); usage != nil {
		if response.Usage, err = usageFromValue(usage); err != nil {
			return nil, within("usage", err)
		}
	}
	if details := takeObject(rest, "incomplete_details"); details != nil {
		response.IncompleteDetails = &responsesv1.IncompleteDetails{Reason: takeString(details, "reason")}
		if response.IncompleteDetails.OverlayJson, err = overlayOf(details); err != nil {
			return nil, within("incomplete_details", err)
		}
	}
	if fault := takeObject(rest, "error"); fault != nil {
		response.Error = &responsesv1.ResponseError{
			Code:    takeString(fault, "code"),
			Message: takeString(fault, "message"),
		}
		if response.Error.OverlayJson, err = overlayOf(fault); err != nil {
			return nil, within("error", err)
		}
	}
	response.OverlayJson, err = overlayOf(rest)
	return response, err
}

// takeObject takes an object, as a copy.
func takeObject(rest *jsonvalue.Object, key string) *jsonvalue.Object {
	value, _ := rest.Get(key)
	object, ok := value.(*jsonvalue.Object)
	if !ok {
		return nil
	}
	rest.Delete(key)
	return object.Clone()
}

// ResponseToJSON writes a response as JSON.
func ResponseToJSON(response *responsesv1.Response) ([]byte, error) {
	value, err := ResponseToValue(response)
	if err != nil {
		return nil, err
	}
	return write(value)
}

// ResponseToValue gives a response as a parsed document; nil is an empty one.
func ResponseToValue(response *responsesv1.Response) (*jsonvalue.Object, error) {
	return responseToValue(response, true)
}

// ResponseHeadToValue is ResponseToValue without the output and the usage, but for what of them
// stands in the overlay.
func ResponseHeadToValue(response *responsesv1.Response) (*jsonvalue.Object, error) {
	return responseToValue(response, false)
}

func responseToValue(response *responsesv1.Response, whole bool) (*jsonvalue.Object, error) {
	if response == nil {
		response = &responsesv1.Response{}
	}
	out := &jsonvalue.Object{}
	put(out, "id", response.Id)
	put(out, "model", response.Model)
	put(out, "status", response.Status)
	if whole {
		if err := putOutput(out, response); err != nil {
			return nil, err
		}
	}
	if details := response.GetIncompleteDetails(); details != nil {
		said := &jsonvalue.Object{}
		put(said, "reason", details.Reason)
		if err := putOverlay(said, details.GetOverlayJson()); err != nil {
			return nil, within("incomplete_details", err)
		}
		out.Set("incomplete_details", said)
	}
	if fault := response.GetError(); fault != nil {
		said := &jsonvalue.Object{}
		put(said, "code", fault.Code)
		put(said, "message", fault.Message)
		if err := putOverlay(said, fault.GetOverlayJson()); err != nil {
			return nil, within("error", err)
		}
		out.Set("error", said)
	}
	return out, putOverlay(out, response.GetOverlayJson())
}

func putOutput(out *jsonvalue.Object, response *responsesv1.Response) error {
	if len(response.GetOutput()) > 0 || !response.GetOutputOmitted() {
		items, err := ItemsToValue(response.GetOutput())
		if err != nil {
			return within("output", err)
		}
		out.Set("output", items)
	}
	if response.Usage != nil {
		usage, err := usageToValue(response.GetUsage())
		if err != nil {
			return within("usage", err)
		}
		out.Set("usage", usage)
	}
	return nil
}

// UsageFromJSON reads the `usage` object of a response.
func UsageFromJSON(text []byte) (*responsesv1.Usage, error) {
	object, err := parseObject(text, "usage")
	if err != nil {
		return nil, err
	}
	return usageFromValue(object)
}

func usageFromValue(rest *jsonvalue.Object) (*responsesv1.Usage, error) {
	usage := &responsesv1.Usage{
		InputTokens:     takeInt(rest, "input_tokens"),
		OutputTokens:    takeInt(rest, "output_tokens"),
		TotalTokens:     takeInt(rest, "total_tokens"),
		CachedTokens:    takeSole(rest, "input_tokens_details", "cached_tokens"),
		ReasoningTokens: takeSole(rest, "output_tokens_details", "reasoning_tokens"),
	}
	var err error
	usage.OverlayJson, err = overlayOf(rest)
	return usage, err
}

// takeSole takes an object that has this count and no other key.
func takeSole(rest *jsonvalue.Object, key, inner string) *int64 {
	value, _ := rest.Get(key)
	object, ok := value.(*jsonvalue.Object)
	if !ok || object.Len() != 1 {
		return nil
	}
	count := takeInt(object.Clone(), inner)
	if count != nil {
		rest.Delete(key)
	}
	return count
}

// UsageToJSON writes token counts as JSON.
func UsageToJSON(usage *responsesv1.Usage) ([]byte, error) {
	value, err := usageToValue(usage)
	if err != nil {
		return nil, err
	}
	return write(value)
}

func usageToValue(usage *responsesv1.Usage) (any, error) {
	out := &jsonvalue.Object{}
	put(out, "input_tokens", usage.InputTokens)
	put(out, "output_tokens", usage.OutputTokens)
	put(out, "total_tokens", usage.TotalTokens)
	if usage.CachedTokens != nil {
		out.Set("input_tokens_details", jsonvalue.NewObject("cached_tokens", usage.GetCachedTokens()))
	}
	if usage.ReasoningTokens != nil {
		out.Set("output_tokens_details", jsonvalue.NewObject("reasoning_tokens", usage.GetReasoningTokens()))
	}
	return out, putOverlay(out, usage.GetOverlayJson())
}
