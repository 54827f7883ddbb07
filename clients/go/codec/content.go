package codec

import (
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

func readParts(values []any) (*responsesv1.ContentParts, error) {
	parts, err := readEach(values, readPart)
	return &responsesv1.ContentParts{Parts: parts}, err
}

func readPart(value any) (*responsesv1.ContentPart, error) {
	object, ok := value.(*jsonvalue.Object)
	if !ok {
		return opaquePart(value)
	}
	kind, _ := object.Get("type")
	rest := object.Clone()
	rest.Delete("type")
	var part responsesv1.ContentPart
	var err error
	switch kind {
	case "input_text":
		said := &responsesv1.InputText{Text: takeString(rest, "text")}
		said.OverlayJson, err = overlayOf(rest)
		part.Kind = &responsesv1.ContentPart_InputText{InputText: said}
	case "output_text":
		said := &responsesv1.OutputText{
			Text:             takeString(rest, "text"),
			AnnotationsEmpty: takeEmptyList(rest, "annotations"),
			LogprobsEmpty:    takeEmptyList(rest, "logprobs"),
		}
		said.OverlayJson, err = overlayOf(rest)
		part.Kind = &responsesv1.ContentPart_OutputText{OutputText: said}
	case "refusal":
		said := &responsesv1.Refusal{Refusal: takeString(rest, "refusal")}
		said.OverlayJson, err = overlayOf(rest)
		part.Kind = &responsesv1.ContentPart_Refusal{Refusal: said}
	case "input_image":
		said := &responsesv1.InputImage{
			ImageUrl: takeString(rest, "image_url"),
			FileId:   takeString(rest, "file_id"),
			Detail:   takeString(rest, "detail"),
		}
		said.OverlayJson, err = overlayOf(rest)
		part.Kind = &responsesv1.ContentPart_InputImage{InputImage: said}
	default:
		return opaquePart(value)
	}
	return &part, err
}

func opaquePart(value any) (*responsesv1.ContentPart, error) {
	kind, text, err := opaque(value)
	if err != nil {
		return nil, err
	}
	part := &responsesv1.OpaquePart{Type: kind, Json: text}
	return &responsesv1.ContentPart{Kind: &responsesv1.ContentPart_Opaque{Opaque: part}}, nil
}

func writePart(part *responsesv1.ContentPart) (any, error) {
	switch kind := part.GetKind().(type) {
	case *responsesv1.ContentPart_InputText:
		out := jsonvalue.NewObject("type", "input_text")
		put(out, "text", kind.InputText.Text)
		return out, putOverlay(out, kind.InputText.GetOverlayJson())
	case *responsesv1.ContentPart_OutputText:
		out := jsonvalue.NewObject("type", "output_text")
		put(out, "text", kind.OutputText.Text)
		if kind.OutputText.GetAnnotationsEmpty() {
			out.Set("annotations", []any{})
		}
		if kind.OutputText.GetLogprobsEmpty() {
			out.Set("logprobs", []any{})
		}
		return out, putOverlay(out, kind.OutputText.GetOverlayJson())
	case *responsesv1.ContentPart_Refusal:
		out := jsonvalue.NewObject("type", "refusal")
		put(out, "refusal", kind.Refusal.Refusal)
		return out, putOverlay(out, kind.Refusal.GetOverlayJson())
	case *responsesv1.ContentPart_InputImage:
		out := jsonvalue.NewObject("type", "input_image")
		put(out, "image_url", kind.InputImage.ImageUrl)
		put(out, "file_id", kind.InputImage.FileId)
		put(out, "detail", kind.InputImage.Detail)
		return out, putOverlay(out, kind.InputImage.GetOverlayJson())
	case *responsesv1.ContentPart_Opaque:
		value, err := parse(kind.Opaque.GetJson())
		return value, within("json", err)
	default:
		return nil, errUnknownKind
	}
}
