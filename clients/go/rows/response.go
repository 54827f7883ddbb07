package rows

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	rowv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/row/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
	"github.com/gymmesh/gymmesh/clients/go/rollouts"
)

// putCalls adds the model calls and the tool calls, and the response, whose output has the parts of the
// calls that lead to the final one.
func putCalls(row *rowv1.Row, rollout *rolloutv1.Rollout) error {
	row.Response = &rowv1.RowResponse{}
	parts := rollouts.Parts(rollout)
	places := make(map[int]uint32)
	if last := rollouts.FinalCall(rollout); last != nil {
		chain, _, err := rollouts.Chain(rollout, last.GetCallId())
		// A rollout may fail because its calls form no conversation; its row has them all the same.
		if err != nil && row.Failure == nil {
			return err
		}
		for _, i := range chain {
			places[i] = uint32(len(row.Response.Output))
			row.Response.Output = append(row.Response.Output, parts[i].Items()...)
		}
	}
	for i, part := range parts {
		if err := checkTokens(part.Call); err != nil {
			return err
		}
		call := copyFields(&rowv1.ModelCall{}, part.Call, part.Call.GetResponse())
		items := part.Items()
		call.ItemCount = uint32(len(items))
		call.ContextCount = uint32(len(part.Context))
		call.AnswerCount = uint32(len(part.Answer))
		if place, found := places[i]; found {
			call.FirstItem = &place
		} else {
			call.Items = items
		}
		row.Calls = append(row.Calls, call)
	}
	for _, record := range rollout.GetToolCalls() {
		row.ToolCalls = append(row.ToolCalls, copyFields(&rowv1.ToolCall{}, record.GetCompleted()))
	}
	return nil
}

// logprobRounding is how far above 0 a log probability may be.
const logprobRounding = 1e-3

// checkTokens refuses log probabilities that no reader of rows takes: of another number than tokens, or
// positive.
func checkTokens(call *rolloutv1.ModelCallCompleted) error {
	sampled, known := call.GetTokens().GetOutputTokenIds(), call.GetTokens().GetLogprobs()
	if len(known) > 0 && len(known) != len(sampled) {
		return fmt.Errorf("call %q: there are %d bytes of token ids and %d of log probabilities",
			call.GetCallId(), len(sampled), len(known))
	}
	for ; len(known) >= 4; known = known[4:] {
		one := float64(math.Float32frombits(binary.LittleEndian.Uint32(known)))
		if one > logprobRounding && !math.IsInf(one, 1) {
			return fmt.Errorf("call %q: the log probability %g is positive", call.GetCallId(), one)
		}
	}
	return nil
}

// The parameters that the API repeats in every response, with its defaults.
const repeatedParams = `{"background":null,"instructions":null,"max_output_tokens":null,
	"max_tool_calls":null,"metadata":null,"parallel_tool_calls":true,"previous_response_id":null,
	"prompt":null,"reasoning":null,"service_tier":null,"temperature":null,"text":null,
	"tool_choice":"auto","tools":[],"top_logprobs":null,"top_p":null,"truncation":null,"user":null}`

// putResponse adds the parameters that were in force, but for the input, which is the task's; and the
// rest of the response, which repeats them.
func putResponse(row *rowv1.Row, task *rolloutv1.Task, rollout *rolloutv1.Rollout) error {
	inForce := &jsonvalue.Object{}
	if params := rollout.GetStarted().GetParams(); params != nil {
		var err error
		if inForce, err = objectOf(params); err != nil {
			return err
		}
	}
	document, err := objectOf(task.GetParams())
	if err != nil {
		return err
	}
	input, found := document.Get("input")
	document.Merge(inForce)
	document.Delete("input")
	if found {
		document.Set("input", input)
	}
	if row.ResponsesCreateParamsJson, err = jsonvalue.Write(document); err != nil {
		return err
	}
	repeated, err := jsonvalue.ParseObject([]byte(repeatedParams))
	if err != nil {
		return err
	}
	for key := range repeated.Clone().All() {
		// A null asks for the default, which the API then repeats.
		if value, _ := inForce.Get(key); value != nil {
			repeated.Set(key, value)
		}
	}
	if row.Response.OverlayJson, err = jsonvalue.Write(repeated); err != nil {
		return err
	}
	if err := putAnswer(row.Response, rollout); err != nil {
		return err
	}
	if row.Failure != nil {
		row.Response.Status = "failed"
	}
	return nil
}

func objectOf(message proto.Message) (*jsonvalue.Object, error) {
	value, err := codec.ToValue(message)
	if err != nil {
		return nil, err
	}
	return value.(*jsonvalue.Object), nil
}

// putAnswer adds the fields of the final call's answer.
func putAnswer(row *rowv1.RowResponse, rollout *rolloutv1.Rollout) error {
	last := rollouts.FinalCall(rollout)
	answer := last.GetResponse()
	if answer == nil {
		answer = &responsesv1.Response{}
	}
	// The overlay may hold these where they are not as the API has them.
	head, err := objectOf(&responsesv1.Response{
		Id: answer.Id, Model: answer.Model, Status: answer.Status, Error: answer.Error,
		IncompleteDetails: answer.IncompleteDetails, OverlayJson: answer.OverlayJson,
	})
	if err != nil {
		return err
	}
	row.Id = or(textIn(head, "id"), rollout.GetRolloutId())
	row.Object = "response"
	row.CreatedAt = startedAt(rollout)
	row.Model = or(textIn(head, "model"), last.GetModel())
	row.Status = or(textIn(head, "status"), "completed")
	row.Usage = usageOf(callsOf(rollout, ""))
	if fault, _ := head.Get("error"); fault != nil {
		if row.ErrorJson, err = jsonvalue.Write(fault); err != nil {
			return err
		}
	}
	details, _ := head.Get("incomplete_details")
	if cut := cutShort(rollout.GetCompleted()); cut != nil && saysNothing(details) {
		details = cut
	}
	if !saysNothing(details) {
		row.Status = "incomplete"
	}
	if details != nil {
		row.IncompleteDetailsJson, err = jsonvalue.Write(details)
	}
	return err
}

// textIn gives a text that a field can hold; empty where the answer has something else in its place.
func textIn(head *jsonvalue.Object, key string) string {
	value, _ := head.Get(key)
	if text, ok := value.(string); ok && utf8.ValidString(text) {
		return text
	}
	return ""
}

// saysNothing says whether a value is null, false, zero or empty.
func saysNothing(value any) bool {
	switch value := value.(type) {
	case *jsonvalue.Object:
		return value.Len() == 0
	case []any:
		return len(value) == 0
	default:
		return value == nil || value == "" || value == false || value == int64(0) || value == 0.0
	}
}

func cutShort(completed *rolloutv1.Completed) any {
	switch completed.GetStopReason() {
	case rolloutv1.StopReason_STOP_REASON_MAX_OUTPUT_TOKENS:
		return jsonvalue.NewObject("reason", "max_output_tokens")
	case rolloutv1.StopReason_STOP_REASON_CONTENT_FILTER:
		return jsonvalue.NewObject("reason", "content_filter")
	default:
		return nil
	}
}

// putExtras adds the task's other keys, then those of the evidence whose names are free. The task's keys
// that are the row's own are kept apart; its `metadata` is merged with the row's.
func putExtras(row *rowv1.Row, task *rolloutv1.Task) error {
	own, free, kept := codec.Keys(row), &jsonvalue.Object{}, &jsonvalue.Object{}
	payload, err := jsonvalue.ParseObject(or(task.GetPayloadJson(), []byte("{}")))
	if err != nil {
		return fmt.Errorf("the task's payload: %w", err)
	}
	for key, value := range payload.All() {
		members, isObject := value.(*jsonvalue.Object)
		switch {
		case !own[key]:
			free.Set(key, value)
		case key == "metadata" && isObject:
			hidden, err := mergeMetadata(row.Metadata, members)
			if err != nil {
				return err
			}
			if hidden.Len() > 0 {
				kept.Set(key, hidden)
			}
		default:
			kept.Set(key, value)
		}
	}
	evidence, err := jsonvalue.Parse(or(row.GetVerification().GetEvidenceJson(), []byte("{}")))
	if err != nil {
		return fmt.Errorf("the evidence: %w", err)
	}
	if object, ok := evidence.(*jsonvalue.Object); ok {
		for key, value := range object.All() {
			if !own[key] && !free.Has(key) {
				free.Set(key, value)
			}
		}
	}
	if row.TaskExtrasJson, err = writeUnlessEmpty(kept); err != nil {
		return err
	}
	row.OverlayJson, err = writeUnlessEmpty(free)
	return err
}

// mergeMetadata adds the task's metadata to the row's, and gives the members that are columns there.
func mergeMetadata(row *rowv1.RowMetadata, tasks *jsonvalue.Object) (hidden *jsonvalue.Object, err error) {
	own, free := codec.Keys(row), &jsonvalue.Object{}
	hidden = &jsonvalue.Object{}
	for key, value := range tasks.All() {
		if own[key] {
			hidden.Set(key, value)
		} else {
			free.Set(key, value)
		}
	}
	row.OverlayJson, err = writeUnlessEmpty(free)
	return hidden, err
}

func writeUnlessEmpty(object *jsonvalue.Object) ([]byte, error) {
	if object.Len() == 0 {
		return nil, nil
	}
	return jsonvalue.Write(object)
}
