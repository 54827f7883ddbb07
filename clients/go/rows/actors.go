package rows

import (
	"maps"
	"slices"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
	"github.com/gymmesh/gymmesh/clients/go/rollouts"
)

// putActors puts what actors beside the root agent said, in the order of their names, where there
// are any.
func putActors(row *jsonvalue.Object, rollout *rolloutv1.Rollout) error {
	names := make(map[string]bool)
	for _, call := range rollout.GetModelCalls() {
		if actor := call.GetActor(); actor != "" {
			names[actor] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	tokens := rollouts.Tokens(rollout.GetModelCalls())
	actors := []any{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		actor, err := actorOf(rollout, name, tokens)
		if err != nil {
			return err
		}
		actors = append(actors, actor)
	}
	row.Set("actors", actors)
	return nil
}

// actorOf gives one actor. Its reward is the component of the verdict that is called like it. Where
// a trainer should learn from some of its calls, these alone have tokens.
func actorOf(
	rollout *rolloutv1.Rollout, name string, tokens map[string]rollouts.CallTokens,
) (*jsonvalue.Object, error) {
	calls := callsOf(rollout, name)
	models, trainable := make(map[string]bool), false
	own, wentOn := make(map[string]*rolloutv1.ModelCallCompleted), make(map[string]bool)
	for _, call := range calls {
		models[call.GetModel()] = true
		trainable = trainable || call.GetTrainable()
		own[call.GetCallId()] = call
		if !call.GetDetached() {
			wentOn[call.GetParentCallId()] = true
		}
	}
	for _, call := range calls {
		if trainable && !call.GetTrainable() {
			delete(tokens, call.GetCallId())
		}
	}
	conversations := []any{}
	for _, call := range calls {
		if wentOn[call.GetCallId()] {
			continue
		}
		conversation, err := conversationOf(rollout, own, call, tokens)
		if err != nil {
			return nil, err
		}
		conversations = append(conversations, conversation)
	}
	model := func(name string) any { return name }
	actor := jsonvalue.NewObject(
		"name", name,
		"models", listOf(slices.Sorted(maps.Keys(models)), model),
		"model_calls", len(calls),
		"trainable", trainable,
	)
	for _, part := range rollout.GetVerified().GetVerification().GetComponents() {
		if part.GetName() == name {
			actor.Set("reward", part.GetValue())
		}
	}
	actor.Set("usage", usage(calls))
	actor.Set("conversations", conversations)
	return actor, nil
}

// conversationOf gives the conversation that ends with a call: its items from where the actor began
// to speak, and apart from them what it had read before.
func conversationOf(
	rollout *rolloutv1.Rollout,
	own map[string]*rolloutv1.ModelCallCompleted,
	last *rolloutv1.ModelCallCompleted,
	tokens map[string]rollouts.CallTokens,
) (*jsonvalue.Object, error) {
	thread, err := rollouts.ThreadOf(rollout, last.GetCallId())
	if err != nil {
		return nil, err
	}
	first := last
	for !first.GetDetached() && own[first.GetParentCallId()] != nil {
		first = own[first.GetParentCallId()]
	}
	conversation := &jsonvalue.Object{}
	begins := 0
	if after := first.GetParentCallId(); after != "" && !first.GetDetached() {
		before, err := rollouts.ThreadOf(rollout, after)
		if err != nil {
			return nil, err
		}
		begins = len(before.Items)
		conversation.Set("after", after)
	}
	var read []*responsesv1.Item
	if thread.FromStart {
		read = rollout.GetStarted().GetItems()
	}
	if read = slices.Concat(read, thread.Items[:begins]); len(read) > 0 {
		items, err := codec.ItemsToValue(read)
		if err != nil {
			return nil, err
		}
		conversation.Set("first_items", items)
	}
	items, err := codec.ItemsToValue(thread.Items[begins:])
	if err != nil {
		return nil, err
	}
	for place, id := range thread.LastOf {
		if place >= begins {
			putTokens(items[place-begins], tokens, id)
		}
	}
	conversation.Set("items", items)
	return conversation, nil
}
