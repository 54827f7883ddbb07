package codec

import (
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// ParamsFromJSON reads the body of `POST /v1/responses`.
func ParamsFromJSON(text []byte) (*responsesv1.ResponseParams, error) {
	object, err := parseObject(text, "parameters")
	if err != nil {
		return nil, err
	}
	return ParamsFromValue(object)
}

// ParamsFromValue reads parameters from a parsed document.
func ParamsFromValue(object *jsonvalue.Object) (*responsesv1.ResponseParams, error) {
	rest := object.Clone()
	params := &responsesv1.ResponseParams{
		Model:              takeString(rest, "model"),
		Instructions:       takeString(rest, "instructions"),
		PreviousResponseId: takeString(rest, "previous_response_id"),
		ParallelToolCalls:  takeBool(rest, "parallel_tool_calls"),
		MaxOutputTokens:    takeInt(rest, "max_output_tokens"),
		Temperature:        takeNumber(rest, "temperature"),
		TopP:               takeNumber(rest, "top_p"),
	}
	if err := readInput(params, rest); err != nil {
		return nil, within("input", err)
	}
	if err := readTools(params, rest); err != nil {
		return nil, within("tools", err)
	}
	for key, field := range jsonFields(params) {
		text, err := takeJSON(rest, key, key == "tool_choice")
		if err != nil {
			return nil, within(key, err)
		}
		*field = text
	}
	var err error
	params.OverlayJson, err = overlayOf(rest)
	return params, err
}

func jsonFields(params *responsesv1.ResponseParams) map[string]*[]byte {
	return map[string]*[]byte{
		"tool_choice": &params.ToolChoiceJson,
		"text":        &params.TextJson,
		"reasoning":   &params.ReasoningJson,
		"metadata":    &params.MetadataJson,
	}
}

func readInput(params *responsesv1.ResponseParams, rest *jsonvalue.Object) error {
	given, _ := rest.Get("input")
	if list, ok := given.([]any); ok {
		rest.Delete("input")
		var err error
		params.Input, err = ItemsFromValue(list)
		return err
	}
	params.InputText = takeString(rest, "input")
	params.InputOmitted = params.InputText == nil
	return nil
}

func readTools(params *responsesv1.ResponseParams, rest *jsonvalue.Object) error {
	given, _ := rest.Get("tools")
	list, ok := given.([]any)
	params.ToolsOmitted = !ok
	if !ok {
		return nil
	}
	rest.Delete("tools")
	var err error
	params.Tools, err = readEach(list, toolFromValue)
	return err
}

func takeNumber(rest *jsonvalue.Object, key string) *responsesv1.Number {
	value, _ := rest.Get(key)
	number := &responsesv1.Number{}
	switch value := value.(type) {
	case int64:
		number.Value = &responsesv1.Number_Integer{Integer: value}
	case float64:
		number.Value = &responsesv1.Number_Real{Real: value}
	default:
		return nil
	}
	rest.Delete(key)
	return number
}

// ParamsToJSON writes parameters as JSON.
func ParamsToJSON(params *responsesv1.ResponseParams) ([]byte, error) {
	value, err := ParamsToValue(params)
	if err != nil {
		return nil, err
	}
	return write(value)
}

// ParamsToValue gives parameters as a parsed document; nil ones are empty ones.
func ParamsToValue(params *responsesv1.ResponseParams) (*jsonvalue.Object, error) {
	if params == nil {
		params = &responsesv1.ResponseParams{}
	}
	out := &jsonvalue.Object{}
	put(out, "model", params.Model)
	put(out, "instructions", params.Instructions)
	put(out, "parallel_tool_calls", params.ParallelToolCalls)
	put(out, "max_output_tokens", params.MaxOutputTokens)
	put(out, "previous_response_id", params.PreviousResponseId)
	if err := putInput(out, params); err != nil {
		return nil, within("input", err)
	}
	if len(params.GetTools()) > 0 || !params.GetToolsOmitted() {
		tools, err := writeEach(params.GetTools(), toolToValue)
		if err != nil {
			return nil, within("tools", err)
		}
		out.Set("tools", tools)
	}
	if err := putNumber(out, "temperature", params.GetTemperature()); err != nil {
		return nil, err
	}
	if err := putNumber(out, "top_p", params.GetTopP()); err != nil {
		return nil, err
	}
	fields := jsonFields(params)
	for _, key := range []string{"tool_choice", "text", "reasoning", "metadata"} {
		if err := putJSON(out, key, *fields[key]); err != nil {
			return nil, err
		}
	}
	return out, putOverlay(out, params.GetOverlayJson())
}

func putInput(out *jsonvalue.Object, params *responsesv1.ResponseParams) error {
	if params.InputText != nil {
		if len(params.GetInput()) > 0 {
			return problem("given both as text and as a list of items")
		}
		out.Set("input", params.GetInputText())
	} else if len(params.GetInput()) > 0 || !params.GetInputOmitted() {
		items, err := ItemsToValue(params.GetInput())
		if err != nil {
			return err
		}
		out.Set("input", items)
	}
	return nil
}

func putNumber(out *jsonvalue.Object, key string, number *responsesv1.Number) error {
	switch value := number.GetValue().(type) {
	case *responsesv1.Number_Integer:
		out.Set(key, value.Integer)
	case *responsesv1.Number_Real:
		if err := finite(key, value.Real); err != nil {
			return err
		}
		out.Set(key, value.Real)
	}
	return nil
}

// ToolFromJSON reads one tool; any but a function becomes an OpaqueTool.
func ToolFromJSON(text []byte) (*responsesv1.Tool, error) {
	value, err := parse(text)
	if err != nil {
		return nil, err
	}
	return toolFromValue(value)
}

func toolFromValue(value any) (*responsesv1.Tool, error) {
	object, ok := value.(*jsonvalue.Object)
	if ok {
		kind, _ := object.Get("type")
		ok = kind == "function"
	}
	if !ok {
		kind, text, err := opaque(value)
		tool := &responsesv1.OpaqueTool{Type: kind, Json: text}
		return &responsesv1.Tool{Kind: &responsesv1.Tool_Opaque{Opaque: tool}}, err
	}
	rest := object.Clone()
	rest.Delete("type")
	function := &responsesv1.FunctionTool{
		Name:        takeString(rest, "name"),
		Description: takeString(rest, "description"),
		Strict:      takeBool(rest, "strict"),
	}
	var err error
	if function.ParametersJson, err = takeJSON(rest, "parameters", false); err != nil {
		return nil, within("parameters", err)
	}
	function.OverlayJson, err = overlayOf(rest)
	return &responsesv1.Tool{Kind: &responsesv1.Tool_Function{Function: function}}, err
}

// ToolToJSON writes one tool as JSON.
func ToolToJSON(tool *responsesv1.Tool) ([]byte, error) {
	value, err := toolToValue(tool)
	if err != nil {
		return nil, err
	}
	return write(value)
}

func toolToValue(tool *responsesv1.Tool) (any, error) {
	switch kind := tool.GetKind().(type) {
	case *responsesv1.Tool_Function:
		out := jsonvalue.NewObject("type", "function")
		put(out, "name", kind.Function.Name)
		put(out, "description", kind.Function.Description)
		put(out, "strict", kind.Function.Strict)
		if err := putJSON(out, "parameters", kind.Function.ParametersJson); err != nil {
			return nil, err
		}
		return out, putOverlay(out, kind.Function.GetOverlayJson())
	case *responsesv1.Tool_Opaque:
		value, err := parse(kind.Opaque.GetJson())
		return value, within("json", err)
	default:
		return nil, errUnknownKind
	}
}
