package rows

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	rowv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/row/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
)

// Of returns the row of a rollout, which codec.Marshal writes. The failure is nil for a completed
// rollout. A failed one has no reward, and none may be inferred; its rollout is what was known before
// the failure.
func Of(
	task *rolloutv1.Task, rollout *rolloutv1.Rollout, failure *rolloutv1.Failure,
) (*rowv1.Row, error) {
	row := &rowv1.Row{}
	if failure == nil {
		copyFields(row, rollout.GetVerified(), rollout.GetCompleted(), rollout, task)
		if row.Verification == nil {
			row.Verification = &rolloutv1.Verification{
				Status: rolloutv1.VerificationStatus_VERIFICATION_STATUS_SKIPPED,
				Reason: "the agent sent no verdict",
			}
		}
		row.Reward = row.Verification.Reward
	} else {
		copyFields(row, rollout, task)
		row.Failure = failureOf(failure)
	}
	started := rollout.GetStarted()
	row.Environment = or(started.GetEnvironment(), row.Environment)
	row.Agent = or(started.GetAgent(), row.Agent)
	row.ProgramName = started.GetProgram().GetName()
	row.ProgramVersion = started.GetProgram().GetVersion()
	if started != nil && !beginsWithInput(task, started) {
		row.FirstItems = started.GetItems()
	}
	row.ModelUsage = usageByModel(rollout, failure.GetStatus())
	row.Actors = actorsOf(rollout, row.GetVerification())
	for _, turn := range rollout.GetTurns() {
		row.Turns = append(row.Turns, copyFields(&rowv1.Turn{}, turn))
	}
	row.Metadata = metadataOf(rollout, row.Reward != nil)
	if err := putCalls(row, rollout); err != nil {
		return nil, err
	}
	if err := putResponse(row, task, rollout); err != nil {
		return nil, err
	}
	return row, putExtras(row, task)
}

// copyFields gives each field the value of the first of these messages that has one of its name and type,
// and returns the message with them.
func copyFields[M proto.Message](into M, from ...proto.Message) M {
	to := into.ProtoReflect()
	for i := range to.Descriptor().Fields().Len() {
		field := to.Descriptor().Fields().Get(i)
		for _, message := range from {
			source := message.ProtoReflect()
			same := source.Descriptor().Fields().ByName(field.Name())
			if same != nil && isSameType(same, field) && source.Has(same) {
				to.Set(field, source.Get(same))
				break
			}
		}
	}
	return into
}

func isSameType(a, b protoreflect.FieldDescriptor) bool {
	if a.IsMap() || b.IsMap() {
		return a.IsMap() && b.IsMap() // all are of texts
	}
	return a.Kind() == b.Kind() && a.IsList() == b.IsList() && a.Message() == b.Message() && a.Enum() == b.Enum()
}

func or[T ~string | ~[]byte](said, standard T) T {
	if len(said) == 0 {
		return standard
	}
	return said
}

func failureOf(failure *rolloutv1.Failure) *rowv1.RowFailure {
	info := &errdetails.ErrorInfo{}
	detailOf(failure.GetStatus(), info)
	row := copyFields(&rowv1.RowFailure{}, failure)
	row.Status = copyFields(&rowv1.RowStatus{}, failure.GetStatus(), info)
	return row
}

// detailOf reads the first detail of this type, if there is one.
func detailOf(status *spb.Status, into proto.Message) {
	for _, detail := range status.GetDetails() {
		if detail.MessageIs(into) && detail.UnmarshalTo(into) == nil {
			return
		}
	}
}

// beginsWithInput says whether the conversation began with the task's input and no more.
func beginsWithInput(task *rolloutv1.Task, started *rolloutv1.Started) bool {
	items := started.GetItems()
	if params := task.GetParams(); params != nil && params.InputText != nil {
		if len(items) != 1 || items[0].GetMessage().GetRole() != "user" {
			return false
		}
		text, err := codec.TextOf(items[0])
		return err == nil && text == params.GetInputText()
	}
	return slices.EqualFunc(items, task.GetParams().GetInput(),
		func(a, b *responsesv1.Item) bool { return proto.Equal(a, b) })
}
