package rollouts

import (
	"fmt"
	"slices"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
)

// Thread is the conversation that leads to a model call, its tools' answers and turns included,
// without the items of `started`.
type Thread struct {
	// Items are those of the rollout, not copies.
	Items []*responsesv1.Item
	// FromStart says whether the items of `started` stand before them.
	FromStart bool
	// LastOf has, by the place of an item, the model call whose answer ends there.
	LastOf map[int]string
}

// Conversation returns the conversation up to and including a model call, its tools' answers and
// its turns.
func Conversation(rollout *rolloutv1.Rollout, callID string) ([]*responsesv1.Item, error) {
	thread, err := ThreadOf(rollout, callID)
	if err != nil {
		return nil, err
	}
	if !thread.FromStart {
		return thread.Items, nil
	}
	return slices.Concat(rollout.GetStarted().GetItems(), thread.Items), nil
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

// ThreadOf follows the parents of a model call. It fails where there is no such call, or where
// parents go in a circle.
func ThreadOf(rollout *rolloutv1.Rollout, callID string) (*Thread, error) {
	chain, fromStart, err := chainOf(rollout, callID)
	if err != nil {
		return nil, err
	}
	outputs := make(map[toolKey][]*responsesv1.Item)
	for _, record := range rollout.GetToolCalls() {
		done := record.GetCompleted()
		if done.GetOutput() != nil {
			key := toolKey{done.GetModelCallId(), done.GetCallId()}
			outputs[key] = append(outputs[key], done.GetOutput())
		}
	}
	turns := make(map[string][]*responsesv1.Item)
	for _, turn := range rollout.GetTurns() {
		id := turn.GetModelCallId()
		turns[id] = append(turns[id], turn.GetItems()...)
	}
	thread := &Thread{FromStart: fromStart, LastOf: make(map[int]string)}
	for _, call := range chain {
		thread.add(call, outputs)
		thread.Items = append(thread.Items, turns[call.GetCallId()]...)
	}
	return thread, nil
}

// add adds what a call brought: its context, its answer, and what its tools answered.
func (t *Thread) add(
	call *rolloutv1.ModelCallCompleted, outputs map[toolKey][]*responsesv1.Item,
) {
	t.Items = append(t.Items, call.GetContextItems()...)
	wrote := call.GetResponse().GetOutput()
	if len(wrote) == 0 {
		return
	}
	t.Items = append(t.Items, wrote...)
	t.LastOf[len(t.Items)-1] = call.GetCallId()
	for _, item := range wrote {
		asked := item.GetFunctionCall()
		if asked == nil {
			continue
		}
		// Two calls of one id, which only a custom agent can bring about, are answered in order.
		key := toolKey{call.GetCallId(), asked.GetCallId()}
		if answers := outputs[key]; len(answers) > 0 {
			t.Items = append(t.Items, answers[0])
			outputs[key] = answers[1:]
		}
	}
}

// chainOf gives the calls from the first one to this one, and whether they begin at `started`.
func chainOf(
	rollout *rolloutv1.Rollout, callID string,
) ([]*rolloutv1.ModelCallCompleted, bool, error) {
	calls := make(map[string]*rolloutv1.ModelCallCompleted)
	for _, call := range rollout.GetModelCalls() {
		calls[call.GetCallId()] = call
	}
	var chain []*rolloutv1.ModelCallCompleted
	for {
		call := calls[callID]
		if call == nil {
			return nil, false, fmt.Errorf("the rollout has no model call %q", callID)
		}
		if len(chain) == len(calls) {
			return nil, false, fmt.Errorf("the parents of model call %q go in a circle", callID)
		}
		chain = append(chain, call)
		if call.GetParentCallId() == "" || call.GetDetached() {
			slices.Reverse(chain)
			return chain, !call.GetDetached(), nil
		}
		callID = call.GetParentCallId()
	}
}
