package rollouts

import (
	"fmt"
	"slices"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
)

// Part has the items that a model call added to its conversation. They are those of the rollout,
// not copies.
type Part struct {
	Call *rolloutv1.ModelCallCompleted
	// Context was put before the answer.
	Context []*responsesv1.Item
	Answer  []*responsesv1.Item
	// After are the outputs of its tool calls in the order of the calls, then the items of its turns.
	After []*responsesv1.Item
}

// Items are the whole part, in order.
func (p *Part) Items() []*responsesv1.Item { return slices.Concat(p.Context, p.Answer, p.After) }

// Parts returns the parts of all model calls, in the order of Rollout.model_calls.
func Parts(rollout *rolloutv1.Rollout) []Part {
	outputs := make(map[toolKey][]*responsesv1.Item)
	for _, record := range rollout.GetToolCalls() {
		if done := record.GetCompleted(); done.GetOutput() != nil {
			key := toolKey{done.GetModelCallId(), done.GetCallId()}
			outputs[key] = append(outputs[key], done.GetOutput())
		}
	}
	turns := make(map[string][]*responsesv1.Item)
	for _, turn := range rollout.GetTurns() {
		turns[turn.GetModelCallId()] = append(turns[turn.GetModelCallId()], turn.GetItems()...)
	}
	parts := make([]Part, len(rollout.GetModelCalls()))
	for i, call := range rollout.GetModelCalls() {
		part := Part{Call: call, Context: call.GetContextItems(), Answer: call.GetResponse().GetOutput()}
		for _, item := range part.Answer {
			// Several calls of one id, which only a custom agent makes, are answered in order.
			key := toolKey{call.GetCallId(), item.GetFunctionCall().GetCallId()}
			if answers := outputs[key]; item.GetFunctionCall() != nil && len(answers) > 0 {
				part.After, outputs[key] = append(part.After, answers[0]), answers[1:]
			}
		}
		part.After = append(part.After, turns[call.GetCallId()]...)
		parts[i] = part
	}
	return parts
}

// Chain returns the places in Rollout.model_calls of the calls whose conversation a call continues, from
// the first one to itself, and whether the items of `started` come before them. It fails where there
// is no such call, or where parents form a circle.
func Chain(rollout *rolloutv1.Rollout, callID string) (places []int, fromStart bool, err error) {
	calls := rollout.GetModelCalls()
	byID := make(map[string]int, len(calls))
	for i, call := range calls {
		byID[call.GetCallId()] = i
	}
	for {
		place, found := byID[callID]
		if !found {
			return nil, false, fmt.Errorf("the rollout has no model call %q", callID)
		}
		if len(places) == len(calls) {
			return nil, false, fmt.Errorf("the parents of model call %q form a circle", callID)
		}
		places = append(places, place)
		call := calls[place]
		if call.GetParentCallId() == "" || call.GetDetached() {
			slices.Reverse(places)
			return places, !call.GetDetached(), nil
		}
		callID = call.GetParentCallId()
	}
}

// Conversation returns the conversation up to and including a model call, the outputs of its tools and
// its turns.
func Conversation(rollout *rolloutv1.Rollout, callID string) ([]*responsesv1.Item, error) {
	chain, fromStart, err := Chain(rollout, callID)
	if err != nil {
		return nil, err
	}
	var items []*responsesv1.Item
	if fromStart {
		items = append(items, rollout.GetStarted().GetItems()...)
	}
	parts := Parts(rollout)
	for _, place := range chain {
		items = append(items, parts[place].Items()...)
	}
	return items, nil
}

// FinalCall returns the end of the final transcript: the root agent's last model call, or the last
// of all when the root agent made none; nil when there was no call.
func FinalCall(rollout *rolloutv1.Rollout) *rolloutv1.ModelCallCompleted {
	calls := rollout.GetModelCalls()
	for _, call := range slices.Backward(calls) {
		if call.GetActor() == "" {
			return call
		}
	}
	if len(calls) > 0 {
		return calls[len(calls)-1]
	}
	return nil
}

// Transcript returns the conversation of the final call; with no model call, the items that the
// rollout began with.
func Transcript(rollout *rolloutv1.Rollout) ([]*responsesv1.Item, error) {
	last := FinalCall(rollout)
	if last == nil {
		return rollout.GetStarted().GetItems(), nil
	}
	return Conversation(rollout, last.GetCallId())
}
