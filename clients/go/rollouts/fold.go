// Package rollouts folds the events of an attempt into a rollout, by the stream law at the top of
// gymmesh/rollout/v1/rollout.proto, and finds conversations in it. It is pure.
package rollouts

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
)

// Rule is a rule of the stream law.
type Rule string

// The rules that a stream of events may break.
const (
	// RuleStarted: the first event is not `started`, or a second one came.
	RuleStarted Rule = "started"
	// RuleSequence: the numbers are not 1, 2, 3 …
	RuleSequence Rule = "sequence"
	// RuleIdentity: an event is of another rollout or attempt.
	RuleIdentity Rule = "identity"
	// RuleAfterTerminal: an event came after `completed` or `failed`.
	RuleAfterTerminal Rule = "after_terminal"
	// RuleTruncated: the stream ended with no terminal event.
	RuleTruncated Rule = "truncated"
	// RuleUnknownEvent: an event of an unknown kind is not marked ignorable.
	RuleUnknownEvent Rule = "unknown_event"
	// RuleUnverified: `completed` came without a verdict, or the verdict contradicts itself.
	RuleUnverified Rule = "unverified"
	// RuleTerminal: the terminal event lacks its stop reason or boundary, has one that is not
	// known, or counts another number of events.
	RuleTerminal Rule = "terminal"
)

// StreamViolation reports that events break the stream law. Such events are not data.
type StreamViolation struct {
	Rule     Rule
	Sentence string
}

func (v *StreamViolation) Error() string { return fmt.Sprintf("%s: %s", v.Rule, v.Sentence) }

func violation(rule Rule, format string, args ...any) error {
	return &StreamViolation{Rule: rule, Sentence: fmt.Sprintf(format, args...)}
}

// Identity names the rollout whose events are folded.
type Identity struct {
	RolloutID   string
	Attempt     uint32
	RunID       string
	TaskID      string
	RepeatIndex uint32
}

// Fold takes the events of one attempt, one at a time.
type Fold struct {
	rollout  *rolloutv1.Rollout
	sequence uint64
	ended    bool
	// Tool calls that are not answered yet.
	open map[toolKey][]*rolloutv1.ToolCallRecord
}

// toolKey is what a tool call is known by.
type toolKey struct{ modelCallID, callID string }

// NewFold returns a fold that has taken nothing yet.
func NewFold(identity Identity) *Fold {
	return &Fold{
		rollout: &rolloutv1.Rollout{
			RunId:       identity.RunID,
			TaskId:      identity.TaskID,
			RepeatIndex: identity.RepeatIndex,
			RolloutId:   identity.RolloutID,
			Attempt:     max(identity.Attempt, 1),
		},
		open: make(map[toolKey][]*rolloutv1.ToolCallRecord),
	}
}

// Of folds a whole stream.
func Of(identity Identity, events []*rolloutv1.RolloutEvent) (*rolloutv1.Rollout, error) {
	fold := NewFold(identity)
	for _, event := range events {
		if err := fold.Add(event); err != nil {
			return nil, err
		}
	}
	return fold.Finish()
}

// Ended says whether the terminal event has come.
func (f *Fold) Ended() bool { return f.ended }

// Sequence returns how many events were taken.
func (f *Fold) Sequence() uint64 { return f.sequence }

// Partial returns the rollout as far as it has come, for reports on one that broke off. It is no
// data.
func (f *Fold) Partial() *rolloutv1.Rollout {
	f.orderTools()
	return f.rollout
}

// Finish returns the whole rollout, once the stream has ended. The error is a *StreamViolation.
func (f *Fold) Finish() (*rolloutv1.Rollout, error) {
	if !f.ended {
		return nil, violation(RuleTruncated,
			"the stream ended after %d events with no terminal one", f.sequence)
	}
	f.orderTools()
	return f.rollout, nil
}

// Add takes the next event, which must not change any more. The error is a *StreamViolation, and
// then nothing of the event is taken.
func (f *Fold) Add(event *rolloutv1.RolloutEvent) error {
	if err := f.checkPlace(event); err != nil {
		return err
	}
	var err error
	switch kind := event.GetEvent().(type) {
	case *rolloutv1.RolloutEvent_Started:
		f.rollout.Started = kind.Started
		f.rollout.StartedUnixNano = event.GetRecordTimeUnixNano()
	case *rolloutv1.RolloutEvent_ToolCallStarted:
		f.takeToolStart(kind.ToolCallStarted, event.GetRecordTimeUnixNano())
	case *rolloutv1.RolloutEvent_ToolCallCompleted:
		f.takeToolAnswer(kind.ToolCallCompleted)
	case *rolloutv1.RolloutEvent_MediaAdded:
		if medium := kind.MediaAdded.GetMedia(); medium != nil {
			f.rollout.Media = append(f.rollout.Media, medium)
		}
	case *rolloutv1.RolloutEvent_SandboxEnded:
		f.takeSandboxEnd(kind.SandboxEnded)
	case *rolloutv1.RolloutEvent_Verified:
		err = f.takeVerdict(kind.Verified)
	case *rolloutv1.RolloutEvent_Completed:
		err = f.takeCompleted(kind.Completed, event)
	case *rolloutv1.RolloutEvent_Failed:
		err = f.takeFailed(kind.Failed, event)
	case nil:
		if !event.GetIgnorable() {
			err = violation(RuleUnknownEvent, "event %d is of an unknown kind", event.GetSequence())
		}
	default:
		f.keep(event.ProtoReflect())
	}
	if err == nil {
		f.sequence++
	}
	return err
}

// keep puts what happened into the rollout's field for messages of its type. Deltas have none: the answer
// follows them.
func (f *Fold) keep(event protoreflect.Message) {
	member := event.WhichOneof(event.Descriptor().Oneofs().ByName("event"))
	rollout := f.rollout.ProtoReflect()
	for i := range rollout.Descriptor().Fields().Len() {
		switch field := rollout.Descriptor().Fields().Get(i); {
		case field.Message() != member.Message():
		case field.IsList():
			rollout.Mutable(field).List().Append(event.Get(member))
		default:
			rollout.Set(field, event.Get(member))
		}
	}
}

// takeSandboxEnd says of a sandbox how it ended; the event that opened it stays as it was.
func (f *Fold) takeSandboxEnd(ended *rolloutv1.SandboxEnded) {
	for i, opened := range f.rollout.Sandboxes {
		ref := opened.GetSandbox()
		if ref.GetSandboxId() == ended.GetSandboxId() && ref.GetInstanceId() == ended.GetInstanceId() {
			f.rollout.Sandboxes[i] = &rolloutv1.SandboxOpened{
				Sandbox: ref, Role: opened.GetRole(), End: ended.GetEnd(),
			}
		}
	}
}

func (f *Fold) checkPlace(event *rolloutv1.RolloutEvent) error {
	due := f.sequence + 1
	switch _, started := event.GetEvent().(*rolloutv1.RolloutEvent_Started); {
	case f.ended:
		return violation(RuleAfterTerminal, "event %d arrived after the end", event.GetSequence())
	case event.GetSequence() != due:
		return violation(RuleSequence, "expected event %d, got %d", due, event.GetSequence())
	case event.GetRolloutId() != f.rollout.GetRolloutId() || event.GetAttempt() != f.rollout.GetAttempt():
		return violation(RuleIdentity, "got an event of rollout %q, attempt %d, not of %q, attempt %d",
			event.GetRolloutId(), event.GetAttempt(), f.rollout.GetRolloutId(), f.rollout.GetAttempt())
	case started != (due == 1):
		return violation(RuleStarted, "the first event, and no other, is `started`")
	default:
		return nil
	}
}

func (f *Fold) takeToolStart(started *rolloutv1.ToolCallStarted, at uint64) {
	// Until its answer comes, the record only names the call.
	record := &rolloutv1.ToolCallRecord{
		StartedUnixNano: at,
		Completed: &rolloutv1.ToolCallCompleted{
			CallId:      started.GetCallId(),
			Name:        started.GetName(),
			ModelCallId: started.GetModelCallId(),
			Actor:       started.GetActor(),
		},
	}
	key := toolKey{started.GetModelCallId(), started.GetCallId()}
	f.open[key] = append(f.open[key], record)
	f.rollout.ToolCalls = append(f.rollout.ToolCalls, record)
}

func (f *Fold) takeToolAnswer(completed *rolloutv1.ToolCallCompleted) {
	key := toolKey{completed.GetModelCallId(), completed.GetCallId()}
	if waiting := f.open[key]; len(waiting) > 0 {
		waiting[0].Completed = completed
		f.open[key] = waiting[1:]
		return
	}
	f.rollout.ToolCalls = append(f.rollout.ToolCalls, &rolloutv1.ToolCallRecord{Completed: completed})
}

func (f *Fold) takeVerdict(verified *rolloutv1.Verified) error {
	if f.rollout.Verified != nil {
		return violation(RuleUnverified, "got a second verdict")
	}
	if err := checkVerdict(verified.GetVerification()); err != nil {
		return err
	}
	f.rollout.Verified = verified
	return nil
}

func checkVerdict(said *rolloutv1.Verification) error {
	if !known(said.GetStatus(), rolloutv1.VerificationStatus_name) {
		return violation(RuleUnverified, "the verdict has no known status (%d)", said.GetStatus())
	}
	judged := said.GetStatus() == rolloutv1.VerificationStatus_VERIFICATION_STATUS_VERIFIED
	if judged != (said != nil && said.Reward != nil) {
		return violation(RuleUnverified, "a reward is set exactly when VERIFIED")
	}
	if !isFinite(said.GetReward()) {
		return violation(RuleUnverified, "the reward is not finite")
	}
	for _, part := range said.GetComponents() {
		if !isFinite(part.GetValue()) || !isFinite(part.GetWeight()) {
			return violation(RuleUnverified, "component %q is not finite", part.GetName())
		}
	}
	return nil
}

func (f *Fold) takeCompleted(completed *rolloutv1.Completed, event *rolloutv1.RolloutEvent) error {
	if !known(completed.GetStopReason(), rolloutv1.StopReason_name) {
		return violation(RuleTerminal, "`completed` gives no known stop reason (%d)",
			completed.GetStopReason())
	}
	if f.rollout.Verified == nil {
		return violation(RuleUnverified, "got `completed` without `verified`")
	}
	if err := f.end(event, completed.GetEvents()); err != nil {
		return err
	}
	f.rollout.Outcome = &rolloutv1.Rollout_Completed{Completed: completed}
	return nil
}

func (f *Fold) takeFailed(failed *rolloutv1.Failed, event *rolloutv1.RolloutEvent) error {
	boundary := failed.GetFailure().GetBoundary()
	if !known(boundary, rolloutv1.Boundary_name) {
		return violation(RuleTerminal, "`failed` names no known boundary (%d)", boundary)
	}
	if err := f.end(event, failed.GetEvents()); err != nil {
		return err
	}
	f.rollout.Outcome = &rolloutv1.Rollout_Failed{Failed: failed}
	return nil
}

func (f *Fold) end(event *rolloutv1.RolloutEvent, events uint64) error {
	if events != f.sequence+1 {
		return violation(RuleTerminal, "the terminal event counts %d events, but %d arrived",
			events, f.sequence+1)
	}
	f.ended = true
	f.rollout.EndedUnixNano = event.GetRecordTimeUnixNano()
	return nil
}

// orderTools puts tool calls in the order of model calls and, within one, of its function calls.
// Those that no answer holds (a custom agent's own) come after the others, as they came.
func (f *Fold) orderTools() {
	places := make(map[toolKey][]int)
	place := 0
	for _, call := range f.rollout.GetModelCalls() {
		for _, item := range call.GetResponse().GetOutput() {
			if asked := item.GetFunctionCall(); asked != nil {
				key := toolKey{call.GetCallId(), asked.GetCallId()}
				places[key] = append(places[key], place)
				place++
			}
		}
	}
	order := make(map[*rolloutv1.ToolCallRecord]int, len(f.rollout.GetToolCalls()))
	for _, record := range f.rollout.GetToolCalls() {
		key := toolKey{record.GetCompleted().GetModelCallId(), record.GetCompleted().GetCallId()}
		if found := places[key]; len(found) > 0 {
			order[record], places[key] = found[0], found[1:]
		} else {
			order[record] = place
		}
	}
	slices.SortStableFunc(f.rollout.ToolCalls, func(a, b *rolloutv1.ToolCallRecord) int {
		return order[a] - order[b]
	})
}

// known says whether an enum's value is one of the contract's, and not its UNSPECIFIED.
func known[E ~int32](value E, names map[int32]string) bool {
	_, found := names[int32(value)]
	return found && value != 0
}

func isFinite(number float64) bool { return !math.IsNaN(number) && !math.IsInf(number, 0) }
