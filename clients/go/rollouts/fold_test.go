package rollouts

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
)

func TestVectors(t *testing.T) {
	for name, one := range vectors.Folds(t) {
		t.Run(name, func(t *testing.T) {
			var events []*rolloutv1.RolloutEvent
			for _, text := range one.Events {
				event := &rolloutv1.RolloutEvent{}
				if err := protojson.Unmarshal(text, event); err != nil {
					t.Fatal(err)
				}
				events = append(events, event)
			}
			got, err := Of(identityOf(one), events)
			if one.Violates != "" {
				var violation *StreamViolation
				if !errors.As(err, &violation) || string(violation.Rule) != one.Violates {
					t.Fatalf("got %v, want a violation of %q", err, one.Violates)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := &rolloutv1.Rollout{}
			if err := protojson.Unmarshal(one.Rollout, want); err != nil {
				t.Fatal(err)
			}
			vectors.SameMessage(t, got, want)
			checkConversations(t, got, one)
		})
	}
}

func identityOf(one vectors.FoldCase) Identity {
	return Identity{
		RolloutID: one.RolloutID, Attempt: one.Attempt, RunID: one.RunID,
		TaskID: one.TaskID, RepeatIndex: one.RepeatIndex,
	}
}

func checkConversations(t *testing.T, rollout *rolloutv1.Rollout, one vectors.FoldCase) {
	t.Helper()
	for call, want := range one.Conversations {
		items, err := Conversation(rollout, call)
		if err != nil {
			t.Fatal(err)
		}
		sameItems(t, items, want)
	}
	items, err := Transcript(rollout)
	if err != nil {
		t.Fatal(err)
	}
	sameItems(t, items, one.Transcript)
}

func sameItems(t *testing.T, items []*responsesv1.Item, want json.RawMessage) {
	t.Helper()
	// As parts of a message, since a list alone is none.
	text, err := codec.Marshal(&responsesv1.Response{Output: items})
	if err != nil {
		t.Fatal(err)
	}
	vectors.SameDocument(t, text, fmt.Appendf(nil, `{"output": %s}`, want))
}

func TestNothingIsTakenOfAnEventThatBreaksTheLaw(t *testing.T) {
	fold := NewFold(Identity{RolloutID: "r"})
	started := &rolloutv1.RolloutEvent{
		RolloutId: "r", Attempt: 1, Sequence: 1,
		Event: &rolloutv1.RolloutEvent_Started{Started: &rolloutv1.Started{}},
	}
	if err := fold.Add(started); err != nil {
		t.Fatal(err)
	}
	if err := fold.Add(started); err == nil {
		t.Error("the same event was taken twice")
	}
	if fold.Sequence() != 1 || fold.Ended() {
		t.Errorf("%d events, ended: %v", fold.Sequence(), fold.Ended())
	}
}

func TestParentsInACircle(t *testing.T) {
	rollout := &rolloutv1.Rollout{ModelCalls: []*rolloutv1.ModelCallCompleted{
		{CallId: "a", ParentCallId: "b"}, {CallId: "b", ParentCallId: "a"},
	}}
	for _, call := range []string{"a", "c"} {
		if _, err := Conversation(rollout, call); err == nil {
			t.Errorf("%s has a conversation", call)
		}
	}
}
