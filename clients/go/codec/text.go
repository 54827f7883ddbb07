package codec

import (
	"strings"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// NewMessage returns a message with plain text.
func NewMessage(role, text string) *responsesv1.Item {
	message := &responsesv1.Message{Role: &role, Content: &responsesv1.Message_Text{Text: text}}
	return &responsesv1.Item{Kind: &responsesv1.Item_Message{Message: message}}
}

// TextOf returns the plain text of a message or of a tool's answer, its text parts joined; other
// kinds of item, images and refusals have none.
func TextOf(item *responsesv1.Item) (string, error) {
	key := ""
	switch item.GetKind().(type) {
	case *responsesv1.Item_Message:
		key = "content"
	case *responsesv1.Item_FunctionCallOutput:
		key = "output"
	default:
		return "", nil
	}
	// The overlay may hold a part of the text, so the document alone tells.
	value, err := ToValue(item)
	if err != nil {
		return "", err
	}
	content, _ := value.(*jsonvalue.Object).Get(key)
	switch content := content.(type) {
	case string:
		return content, nil
	case []any:
		var text strings.Builder
		for _, part := range content {
			text.WriteString(partText(part))
		}
		return text.String(), nil
	default:
		return "", nil
	}
}

func partText(part any) string {
	object, ok := part.(*jsonvalue.Object)
	if !ok {
		return ""
	}
	kind, _ := object.Get("type")
	if kind != "input_text" && kind != "output_text" {
		return ""
	}
	said, _ := object.Get("text")
	text, _ := said.(string)
	return text
}
