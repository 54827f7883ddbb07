package rows

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// ownKeys are the row's own. A task's key of one of these names is kept under `task_extras`, but
// `metadata` is merged with the task's where that is an object.
var ownKeys = map[string]bool{
	"responses_create_params": true, "first_items": true, "response": true, "reward": true,
	"task_id": true, "rollout_id": true, "run_id": true, "repeat_index": true, "attempt": true,
	"environment": true, "agent": true, "seed": true, "tags": true, "verification": true,
	"final_state": true, "stop_reason": true, "stop_detail": true, "metadata": true, "model_usage": true,
	"actors": true, "failure": true, "task_extras": true,
}

// Completed returns the row of a completed rollout. Its reward is null where there is no verdict,
// and never 0 for that.
func Completed(task *rolloutv1.Task, rollout *rolloutv1.Rollout) (*jsonvalue.Object, error) {
	completed := rollout.GetCompleted()
	if completed == nil {
		return nil, errors.New("only a completed rollout has a row")
	}
	row, extras, err := opening(task, rollout)
	if err != nil {
		return nil, err
	}
	verdict, err := verification(rollout.GetVerified())
	if err != nil {
		return nil, err
	}
	reward, _ := verdict.Get("reward")
	row.Set("reward", reward)
	putIdentity(row, task, rollout)
	row.Set("verification", verdict)
	if err := putFinalState(row, rollout.GetVerified()); err != nil {
		return nil, err
	}
	row.Set("stop_reason", enumName(completed.GetStopReason().String(), "STOP_REASON_"))
	if detail := completed.GetStopDetail(); detail != "" {
		row.Set("stop_detail", detail)
	}
	row.Set("metadata", metadata(rollout, completed.GetDurationUs(), reward != nil))
	putModelUsage(row, rollout, nil)
	if err := putActors(row, rollout); err != nil {
		return nil, err
	}
	evidence, _ := verdict.Get("evidence")
	putExtras(row, extras, evidence)
	return row, nil
}

// Failed returns the row of a failed rollout, whose partial rollout is what was known before it; it
// has no reward, and none may be inferred.
func Failed(
	task *rolloutv1.Task, failure *rolloutv1.Failure, partial *rolloutv1.Rollout,
) (*jsonvalue.Object, error) {
	row, extras, err := opening(task, partial)
	if err != nil {
		return nil, err
	}
	putIdentity(row, task, partial)
	row.Set("failure", jsonvalue.NewObject(
		"boundary", enumName(failure.GetBoundary().String(), "BOUNDARY_"),
		"status", statusOf(failure.GetStatus()),
		"retry_safe", failure.GetRetrySafe(),
		"component", failure.GetComponent(),
		"call_id", failure.GetCallId(),
	))
	duration := partial.GetCompleted().GetDurationUs() + partial.GetFailed().GetDurationUs()
	row.Set("metadata", metadata(partial, duration, false))
	putModelUsage(row, partial, usageOf(failure.GetStatus()))
	if err := putActors(row, partial); err != nil {
		return nil, err
	}
	putExtras(row, extras, nil)
	return row, nil
}

// opening starts a row; extras are the further keys of the task's row.
func opening(
	task *rolloutv1.Task, rollout *rolloutv1.Rollout,
) (row, extras *jsonvalue.Object, err error) {
	document, echoed, err := paramsOf(task, rollout.GetStarted())
	if err != nil {
		return nil, nil, err
	}
	row = jsonvalue.NewObject("responses_create_params", document)
	if started := rollout.GetStarted(); started != nil && !beginsWithInput(task, started) {
		items, err := codec.ItemsToValue(started.GetItems())
		if err != nil {
			return nil, nil, err
		}
		row.Set("first_items", items)
	}
	response, err := response(rollout, echoed)
	if err != nil {
		return nil, nil, err
	}
	row.Set("response", response)
	extras = &jsonvalue.Object{}
	if payload := task.GetPayloadJson(); len(payload) > 0 {
		extras, err = jsonvalue.ParseObject(payload)
	}
	return row, extras, err
}

func beginsWithInput(task *rolloutv1.Task, started *rolloutv1.Started) bool {
	items := started.GetItems()
	if params := task.GetParams(); params != nil && params.InputText != nil {
		if len(items) != 1 || items[0].GetMessage().GetRole() != "user" {
			return false
		}
		text, err := codec.TextOf(items[0])
		return err == nil && text == params.GetInputText()
	}
	input := task.GetParams().GetInput()
	if len(items) != len(input) {
		return false
	}
	for i, item := range items {
		if !proto.Equal(item, input[i]) {
			return false
		}
	}
	return true
}

func putIdentity(row *jsonvalue.Object, task *rolloutv1.Task, rollout *rolloutv1.Rollout) {
	row.Set("task_id", or(rollout.GetTaskId(), task.GetTaskId()))
	row.Set("rollout_id", rollout.GetRolloutId())
	row.Set("run_id", rollout.GetRunId())
	row.Set("repeat_index", rollout.GetRepeatIndex())
	row.Set("attempt", rollout.GetAttempt())
	row.Set("environment", or(rollout.GetStarted().GetEnvironment(), task.GetEnvironment()))
	row.Set("agent", or(rollout.GetStarted().GetAgent(), task.GetAgent()))
	if task.Seed != nil {
		row.Set("seed", task.GetSeed())
	}
	if tags := task.GetTags(); len(tags) > 0 {
		row.Set("tags", textsOf(tags))
	}
}

func textsOf(texts map[string]string) *jsonvalue.Object {
	object := &jsonvalue.Object{}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		object.Set(key, texts[key])
	}
	return object
}

func verification(verified *rolloutv1.Verified) (*jsonvalue.Object, error) {
	if verified == nil {
		return jsonvalue.NewObject("status", "SKIPPED", "reward", nil,
			"reason", "the agent sent no verdict", "evidence", &jsonvalue.Object{}), nil
	}
	said := verified.GetVerification()
	var reward any
	if said != nil && said.Reward != nil {
		reward = said.GetReward()
	}
	components := []any{}
	for _, part := range said.GetComponents() {
		component := jsonvalue.NewObject("name", part.GetName(), "value", part.GetValue())
		if part.Weight != nil {
			component.Set("weight", part.GetWeight())
		}
		components = append(components, component)
	}
	stages := []any{}
	for _, stage := range said.GetStages() {
		stages = append(stages, jsonvalue.NewObject(
			"name", stage.GetName(), "duration_us", stage.GetDurationUs(), "note", stage.GetNote()))
	}
	var evidence any = &jsonvalue.Object{}
	if text := said.GetEvidenceJson(); len(text) > 0 {
		var err error
		if evidence, err = jsonvalue.Parse(text); err != nil {
			return nil, err
		}
	}
	row := jsonvalue.NewObject(
		"status", enumName(said.GetStatus().String(), "VERIFICATION_STATUS_"),
		"reward", reward,
		"reason", said.GetReason(),
		"components", components,
		"verifier", said.GetVerifier(),
		"version", said.GetVerifierVersion(),
		"stages", stages,
		"evidence", evidence,
	)
	if said.GetExplanation() != "" {
		row.Set("explanation", said.GetExplanation())
	}
	if said.GetCompat() != "" {
		row.Set("compat", said.GetCompat())
	}
	return row, nil
}

// putFinalState adds what is kept of the session for a later verdict, where something is.
func putFinalState(row *jsonvalue.Object, verified *rolloutv1.Verified) error {
	kept := verified.GetFinalState()
	if kept == nil {
		return nil
	}
	if len(kept.GetStateJson()) == 0 {
		row.Set("final_state", jsonvalue.NewObject("omitted", kept.GetOmitted()))
		return nil
	}
	state, err := jsonvalue.Parse(kept.GetStateJson())
	if err != nil {
		return err
	}
	row.Set("final_state", jsonvalue.NewObject("state", state))
	return nil
}

// statusOf gives the code, the message, and the reason and metadata of the ErrorInfo.
func statusOf(said *spb.Status) *jsonvalue.Object {
	info := &errdetails.ErrorInfo{}
	for _, detail := range said.GetDetails() {
		if detail.MessageIs(info) && detail.UnmarshalTo(info) == nil {
			break
		}
	}
	return jsonvalue.NewObject(
		"code", int64(said.GetCode()),
		"message", said.GetMessage(),
		"reason", info.GetReason(),
		"metadata", textsOf(info.GetMetadata()),
	)
}

// usageOf gives what a failed turn or verdict had models consume: a further detail of its status.
func usageOf(said *spb.Status) []*rolloutv1.ModelCallUsage {
	for _, detail := range said.GetDetails() {
		usage := &errorsv1.ModelUsage{}
		if detail.MessageIs(usage) && detail.UnmarshalTo(usage) == nil {
			return usage.GetUsage()
		}
	}
	return nil
}

// putModelUsage sums up what the environment's own model calls consumed, by model.
func putModelUsage(
	row *jsonvalue.Object, rollout *rolloutv1.Rollout, others []*rolloutv1.ModelCallUsage,
) {
	var all []*rolloutv1.ModelCallUsage
	for _, turn := range rollout.GetTurns() {
		all = append(all, turn.GetModelUsage()...)
	}
	all = append(all, rollout.GetVerified().GetVerification().GetModelUsage()...)
	all = append(all, others...)
	var models []string
	sums := make(map[string]*rolloutv1.ModelCallUsage)
	for _, entry := range all {
		sum := sums[entry.GetModel()]
		if sum == nil {
			sum = &rolloutv1.ModelCallUsage{Model: entry.GetModel()}
			sums[entry.GetModel()] = sum
			models = append(models, entry.GetModel())
		}
		sum.Calls += entry.GetCalls()
		sum.InputTokens += entry.GetInputTokens()
		sum.OutputTokens += entry.GetOutputTokens()
	}
	if len(models) == 0 {
		return
	}
	list := []any{}
	for _, model := range models {
		sum := sums[model]
		list = append(list, jsonvalue.NewObject("model", model, "calls", sum.GetCalls(),
			"input_tokens", sum.GetInputTokens(), "output_tokens", sum.GetOutputTokens()))
	}
	row.Set("model_usage", list)
}

func putExtras(row, extras *jsonvalue.Object, evidence any) {
	kept := &jsonvalue.Object{}
	for key, value := range extras.All() {
		object, isObject := value.(*jsonvalue.Object)
		switch {
		case !ownKeys[key]:
			row.Set(key, value)
		case key == "metadata" && isObject:
			if hidden := mergeMetadata(row, object); hidden.Len() > 0 {
				kept.Set(key, hidden)
			}
		default:
			kept.Set(key, value)
		}
	}
	if kept.Len() > 0 {
		row.Set("task_extras", kept)
	}
	if object, ok := evidence.(*jsonvalue.Object); ok {
		for key, value := range object.All() {
			if !ownKeys[key] && !row.Has(key) {
				row.Set(key, value)
			}
		}
	}
}

// mergeMetadata puts the row's own metadata over the task's, and gives what it hides of it.
func mergeMetadata(row, tasks *jsonvalue.Object) *jsonvalue.Object {
	value, _ := row.Get("metadata")
	own := value.(*jsonvalue.Object)
	hidden := &jsonvalue.Object{}
	for key, value := range tasks.All() {
		if own.Has(key) {
			hidden.Set(key, value)
		}
	}
	merged := tasks.Clone()
	merged.Merge(own)
	row.Set("metadata", merged)
	return hidden
}

// enumName gives a value's name without its prefix; for a value of a later contract its number.
func enumName(name, prefix string) string {
	if _, err := strconv.Atoi(name); err == nil {
		return name
	}
	return strings.TrimPrefix(name, prefix)
}

func or(text, standard string) string {
	if text == "" {
		return standard
	}
	return text
}
