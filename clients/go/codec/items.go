package codec

import (
	"unicode/utf8"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// ItemFromJSON reads one item; anything that the contract has no kind for becomes an OpaqueItem.
func ItemFromJSON(text []byte) (*responsesv1.Item, error) {
	value, err := parse(text)
	if err != nil {
		return nil, err
	}
	return ItemFromValue(value)
}

// ItemsFromValue reads a list of items from a parsed document.
func ItemsFromValue(values []any) ([]*responsesv1.Item, error) {
	return readEach(values, ItemFromValue)
}

// ItemFromValue reads one item from a parsed document.
func ItemFromValue(value any) (*responsesv1.Item, error) {
	object, ok := value.(*jsonvalue.Object)
	if !ok {
		return opaqueItem(value)
	}
	kind, named := object.Get("type")
	omitted := !named && object.Has("role")
	if omitted {
		kind = "message"
	}
	rest := object.Clone()
	rest.Delete("type")
	switch kind {
	case "message":
		message, err := readMessage(rest)
		if err != nil {
			return nil, err
		}
		message.TypeOmitted = omitted
		return &responsesv1.Item{Kind: &responsesv1.Item_Message{Message: message}}, nil
	case "function_call":
		call, err := readFunctionCall(rest)
		if err != nil {
			return nil, err
		}
		return &responsesv1.Item{Kind: &responsesv1.Item_FunctionCall{FunctionCall: call}}, nil
	case "function_call_output":
		output, err := readFunctionCallOutput(rest)
		if err != nil {
			return nil, err
		}
		return &responsesv1.Item{
			Kind: &responsesv1.Item_FunctionCallOutput{FunctionCallOutput: output},
		}, nil
	case "reasoning":
		reasoning, err := readReasoning(rest)
		if err != nil {
			return nil, err
		}
		return &responsesv1.Item{Kind: &responsesv1.Item_Reasoning{Reasoning: reasoning}}, nil
	default:
		return opaqueItem(value)
	}
}

func opaqueItem(value any) (*responsesv1.Item, error) {
	kind, text, err := opaque(value)
	if err != nil {
		return nil, err
	}
	item := &responsesv1.OpaqueItem{Type: kind, Json: text}
	return &responsesv1.Item{Kind: &responsesv1.Item_Opaque{Opaque: item}}, nil
}

// opaque gives the type of what the contract has no kind for, and its JSON.
func opaque(value any) (string, []byte, error) {
	kind := ""
	if object, ok := value.(*jsonvalue.Object); ok {
		said, _ := object.Get("type")
		if text, ok := said.(string); ok && utf8.ValidString(text) {
			kind = text
		}
	}
	text, err := write(value)
	return kind, text, err
}

func readMessage(rest *jsonvalue.Object) (*responsesv1.Message, error) {
	message := &responsesv1.Message{
		Id:     takeString(rest, "id"),
		Role:   takeString(rest, "role"),
		Status: takeString(rest, "status"),
	}
	content, _ := rest.Get("content")
	if parts, ok := content.([]any); ok {
		read, err := readParts(parts)
		if err != nil {
			return nil, within("content", err)
		}
		message.Content = &responsesv1.Message_Parts{Parts: read}
		rest.Delete("content")
	} else if text := takeString(rest, "content"); text != nil {
		message.Content = &responsesv1.Message_Text{Text: *text}
	}
	var err error
	message.OverlayJson, err = overlayOf(rest)
	return message, err
}

func readFunctionCall(rest *jsonvalue.Object) (*responsesv1.FunctionCall, error) {
	call := &responsesv1.FunctionCall{
		Id:     takeString(rest, "id"),
		CallId: takeString(rest, "call_id"),
		Name:   takeString(rest, "name"),
		Status: takeString(rest, "status"),
	}
	if arguments, ok := takeText(rest, "arguments"); ok {
		call.Arguments = arguments
	}
	var err error
	call.OverlayJson, err = overlayOf(rest)
	return call, err
}

func readFunctionCallOutput(rest *jsonvalue.Object) (*responsesv1.FunctionCallOutput, error) {
	output := &responsesv1.FunctionCallOutput{
		Id:     takeString(rest, "id"),
		CallId: takeString(rest, "call_id"),
		Status: takeString(rest, "status"),
	}
	value, _ := rest.Get("output")
	if parts, ok := value.([]any); ok {
		read, err := readParts(parts)
		if err != nil {
			return nil, within("output", err)
		}
		output.Output = &responsesv1.FunctionCallOutput_Parts{Parts: read}
		rest.Delete("output")
	} else if text, ok := takeText(rest, "output"); ok {
		output.Output = &responsesv1.FunctionCallOutput_Text{Text: text}
	}
	var err error
	output.OverlayJson, err = overlayOf(rest)
	return output, err
}

func readReasoning(rest *jsonvalue.Object) (*responsesv1.Reasoning, error) {
	reasoning := &responsesv1.Reasoning{
		Id:               takeString(rest, "id"),
		EncryptedContent: takeString(rest, "encrypted_content"),
		Status:           takeString(rest, "status"),
		Summary:          takeTexts(rest, "summary", "summary_text"),
		Content:          takeTexts(rest, "content", "reasoning_text"),
	}
	var err error
	reasoning.OverlayJson, err = overlayOf(rest)
	return reasoning, err
}

// takeTexts takes a list whose parts are all of this type and hold a text and no more.
func takeTexts(rest *jsonvalue.Object, key, partType string) *responsesv1.ReasoningTexts {
	value, _ := rest.Get(key)
	parts, ok := value.([]any)
	if !ok {
		return nil
	}
	texts := &responsesv1.ReasoningTexts{}
	for _, part := range parts {
		object, ok := part.(*jsonvalue.Object)
		if !ok || object.Len() != 2 {
			return nil
		}
		kind, _ := object.Get("type")
		said, _ := object.Get("text")
		text, ok := said.(string)
		if !ok || kind != partType || !utf8.ValidString(text) {
			return nil
		}
		texts.Texts = append(texts.Texts, text)
	}
	rest.Delete(key)
	return texts
}

// ItemToJSON writes one item as JSON.
func ItemToJSON(item *responsesv1.Item) ([]byte, error) {
	value, err := ItemToValue(item)
	if err != nil {
		return nil, err
	}
	return write(value)
}

// ItemsToValue gives items as a parsed document.
func ItemsToValue(items []*responsesv1.Item) ([]any, error) {
	return writeEach(items, ItemToValue)
}

// ItemToValue gives one item as a parsed document. An item of no known kind is an error.
func ItemToValue(item *responsesv1.Item) (any, error) {
	switch kind := item.GetKind().(type) {
	case *responsesv1.Item_Message:
		return writeMessage(kind.Message)
	case *responsesv1.Item_FunctionCall:
		return writeFunctionCall(kind.FunctionCall)
	case *responsesv1.Item_FunctionCallOutput:
		return writeFunctionCallOutput(kind.FunctionCallOutput)
	case *responsesv1.Item_Reasoning:
		return writeReasoning(kind.Reasoning)
	case *responsesv1.Item_Opaque:
		value, err := parse(kind.Opaque.GetJson())
		return value, within("json", err)
	default:
		return nil, errUnknownKind
	}
}

func writeMessage(message *responsesv1.Message) (any, error) {
	out := &jsonvalue.Object{}
	if !message.GetTypeOmitted() {
		out.Set("type", "message")
	}
	put(out, "id", message.Id)
	put(out, "role", message.Role)
	put(out, "status", message.Status)
	switch content := message.GetContent().(type) {
	case *responsesv1.Message_Text:
		out.Set("content", content.Text)
	case *responsesv1.Message_Parts:
		parts, err := writeEach(content.Parts.GetParts(), writePart)
		if err != nil {
			return nil, within("content", err)
		}
		out.Set("content", parts)
	}
	return out, putOverlay(out, message.GetOverlayJson())
}

func writeFunctionCall(call *responsesv1.FunctionCall) (any, error) {
	out := jsonvalue.NewObject("type", "function_call")
	put(out, "id", call.Id)
	put(out, "call_id", call.CallId)
	put(out, "name", call.Name)
	put(out, "status", call.Status)
	if call.Arguments != nil {
		if err := putText(out, "arguments", call.GetArguments()); err != nil {
			return nil, err
		}
	}
	return out, putOverlay(out, call.GetOverlayJson())
}

func writeFunctionCallOutput(output *responsesv1.FunctionCallOutput) (any, error) {
	out := jsonvalue.NewObject("type", "function_call_output")
	put(out, "id", output.Id)
	put(out, "call_id", output.CallId)
	put(out, "status", output.Status)
	switch said := output.GetOutput().(type) {
	case *responsesv1.FunctionCallOutput_Text:
		if err := putText(out, "output", said.Text); err != nil {
			return nil, err
		}
	case *responsesv1.FunctionCallOutput_Parts:
		parts, err := writeEach(said.Parts.GetParts(), writePart)
		if err != nil {
			return nil, within("output", err)
		}
		out.Set("output", parts)
	}
	return out, putOverlay(out, output.GetOverlayJson())
}

func writeReasoning(reasoning *responsesv1.Reasoning) (any, error) {
	out := jsonvalue.NewObject("type", "reasoning")
	put(out, "id", reasoning.Id)
	put(out, "encrypted_content", reasoning.EncryptedContent)
	put(out, "status", reasoning.Status)
	putTexts(out, "summary", "summary_text", reasoning.GetSummary())
	putTexts(out, "content", "reasoning_text", reasoning.GetContent())
	return out, putOverlay(out, reasoning.GetOverlayJson())
}

func putTexts(out *jsonvalue.Object, key, partType string, texts *responsesv1.ReasoningTexts) {
	if texts == nil {
		return
	}
	parts := make([]any, 0, len(texts.GetTexts()))
	for _, text := range texts.GetTexts() {
		parts = append(parts, jsonvalue.NewObject("type", partType, "text", text))
	}
	out.Set(key, parts)
}
