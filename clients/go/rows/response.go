package rows

import (
	"maps"
	"math"
	"math/big"
	"slices"

	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
	"github.com/gymmesh/gymmesh/clients/go/rollouts"
)

// echoed are what the API says again of a request in every response, with its defaults.
func echoDefaults() *jsonvalue.Object {
	return jsonvalue.NewObject(
		"background", nil, "instructions", nil, "max_output_tokens", nil, "max_tool_calls", nil,
		"metadata", nil, "parallel_tool_calls", true, "previous_response_id", nil, "prompt", nil,
		"reasoning", nil, "service_tier", nil, "temperature", nil, "text", nil,
		"tool_choice", "auto", "tools", []any{}, "top_logprobs", nil, "top_p", nil,
		"truncation", nil, "user", nil,
	)
}

// paramsOf gives the task's parameters as they were in force, but for the input, which is the
// task's own; and what the response says again of them.
func paramsOf(
	task *rolloutv1.Task, started *rolloutv1.Started,
) (document, echoed *jsonvalue.Object, err error) {
	inForce := &jsonvalue.Object{}
	if params := started.GetParams(); params != nil {
		if inForce, err = codec.ParamsToValue(params); err != nil {
			return nil, nil, err
		}
	}
	asked, err := codec.ParamsToValue(task.GetParams())
	if err != nil {
		return nil, nil, err
	}
	document = asked.Clone()
	document.Merge(inForce)
	if input, found := asked.Get("input"); found {
		document.Set("input", input)
	} else {
		document.Delete("input")
	}
	echoed = echoDefaults()
	for key := range echoDefaults().All() {
		// A null stands for the default, which the API then says.
		if value, _ := inForce.Get(key); value != nil {
			echoed.Set(key, value)
		}
	}
	return document, echoed, nil
}

// response gives a whole rollout as one Responses object: its output is the final transcript after
// the rollout's first items.
func response(rollout *rolloutv1.Rollout, echoed *jsonvalue.Object) (*jsonvalue.Object, error) {
	last := rollouts.FinalCall(rollout)
	head := &jsonvalue.Object{}
	output := []any{}
	if last != nil {
		var err error
		if head, err = codec.ResponseHeadToValue(last.GetResponse()); err != nil {
			return nil, err
		}
		if output, err = outputOf(rollout, last.GetCallId()); err != nil {
			return nil, err
		}
	}
	said := func(key string, standard any) any {
		if value, _ := head.Get(key); !isEmpty(value) {
			return value
		}
		return standard
	}
	failure, _ := head.Get("error")
	details := said("incomplete_details", cutShort(rollout.GetCompleted()))
	state := said("status", "completed")
	if details != nil {
		state = "incomplete"
	}
	row := jsonvalue.NewObject(
		"id", said("id", rollout.GetRolloutId()),
		"object", "response",
		"created_at", startedAt(rollout),
		"model", said("model", last.GetModel()),
		"status", state,
		"error", failure,
		"incomplete_details", details,
		"output", output,
		"usage", usage(callsOf(rollout, "")),
	)
	row.Merge(echoed)
	return row, nil
}

// isEmpty says whether a value stands for none.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case int64:
		return value == 0
	case float64:
		return value == 0
	case *big.Int:
		return false
	case []any:
		return len(value) == 0
	case *jsonvalue.Object:
		return value.Len() == 0
	default:
		return false
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

// outputOf gives the transcript. The calls that the root agent made and a trainer should learn from
// have their tokens with the last item that they wrote, and no others: a reader trains all it finds.
func outputOf(rollout *rolloutv1.Rollout, callID string) ([]any, error) {
	thread, err := rollouts.ThreadOf(rollout, callID)
	if err != nil {
		return nil, err
	}
	output, err := codec.ItemsToValue(thread.Items)
	if err != nil {
		return nil, err
	}
	tokens := rollouts.Tokens(rollout.GetModelCalls())
	for _, call := range rollout.GetModelCalls() {
		if call.GetActor() != "" || !call.GetTrainable() {
			delete(tokens, call.GetCallId())
		}
	}
	for place, id := range thread.LastOf {
		putTokens(output[place], tokens, id)
	}
	return output, nil
}

// putTokens moves a call's tokens to the last item that the call wrote.
func putTokens(item any, tokens map[string]rollouts.CallTokens, callID string) {
	said, found := tokens[callID]
	object, ok := item.(*jsonvalue.Object)
	if !found || !ok {
		return
	}
	delete(tokens, callID)
	if said.Prompt != nil {
		object.Set("prompt_token_ids", listOf(rollouts.TokenIDs(said.Prompt), tokenID))
	}
	object.Set("generation_token_ids", listOf(rollouts.TokenIDs(said.Output), tokenID))
	object.Set("generation_log_probs", listOf(rollouts.LogProbs(said.Logprobs), logProb))
}

func tokenID(id int32) any { return int64(id) }

// logProb gives null for what JSON has no number for, such as that of a token that could not be
// sampled.
func logProb(probability float32) any {
	real := float64(probability)
	if math.IsNaN(real) || math.IsInf(real, 0) {
		return nil
	}
	return real
}

func listOf[T any](numbers []T, convert func(T) any) []any {
	list := make([]any, len(numbers))
	for i, number := range numbers {
		list[i] = convert(number)
	}
	return list
}

// startedAt is in seconds since 1970.
func startedAt(rollout *rolloutv1.Rollout) float64 {
	return float64(rollout.GetStartedUnixNano()) / 1e9
}

// callsOf gives the calls of an actor; the root agent's name is empty.
func callsOf(rollout *rolloutv1.Rollout, actor string) []*rolloutv1.ModelCallCompleted {
	var calls []*rolloutv1.ModelCallCompleted
	for _, call := range rollout.GetModelCalls() {
		if call.GetActor() == actor {
			calls = append(calls, call)
		}
	}
	return calls
}

// usage is the sum over calls.
func usage(calls []*rolloutv1.ModelCallCompleted) *jsonvalue.Object {
	var input, output, cached, reasoning int64
	for _, call := range calls {
		said := call.GetResponse().GetUsage()
		input += said.GetInputTokens()
		output += said.GetOutputTokens()
		cached += said.GetCachedTokens()
		reasoning += said.GetReasoningTokens()
	}
	return jsonvalue.NewObject(
		"input_tokens", input,
		"input_tokens_details", jsonvalue.NewObject("cached_tokens", cached),
		"output_tokens", output,
		"output_tokens_details", jsonvalue.NewObject("reasoning_tokens", reasoning),
		"total_tokens", input+output,
	)
}

func metadata(rollout *rolloutv1.Rollout, durationUs uint64, judged bool) *jsonvalue.Object {
	steps, modelUs, toolsUs := 0, uint64(0), uint64(0)
	for _, call := range rollout.GetModelCalls() {
		modelUs += call.GetTimings().GetTotalUs()
		if call.GetActor() == "" {
			steps++
		}
	}
	tools := []any{}
	outcomes := &toolOutcomes{}
	for _, record := range rollout.GetToolCalls() {
		toolsUs += record.GetCompleted().GetTimings().GetTotalUs()
		outcomes.add(record.GetCompleted())
		if name := record.GetCompleted().GetName(); !slices.Contains(tools, any(name)) {
			tools = append(tools, name)
		}
	}
	row := jsonvalue.NewObject(
		"steps_taken", steps,
		"tools_used", tools,
		"tool_outcomes", outcomes.list(),
		"verified", judged,
	)
	if started := rollout.GetStarted(); started != nil && started.Seed != nil {
		row.Set("seed", started.GetSeed())
	}
	putTokenNotes(row, rollout)
	row.Set("timings", jsonvalue.NewObject(
		"started_at", startedAt(rollout),
		"duration_us", durationUs,
		"model_us", modelUs,
		"tools_us", toolsUs,
		"verify_us", rollout.GetVerified().GetTimings().GetTotalUs(),
	))
	putTimedCalls(row, rollout)
	return row
}

// putTimedCalls says where the time of each model call went that has it, in microseconds, and how
// often it was sent again, by reason.
func putTimedCalls(row *jsonvalue.Object, rollout *rolloutv1.Rollout) {
	calls := []any{}
	for _, call := range rollout.GetModelCalls() {
		timings := call.GetTimings()
		if timings.GetEndpointUs() == 0 && len(call.GetRetries()) == 0 {
			continue
		}
		retries := jsonvalue.NewObject()
		for _, one := range call.GetRetries() {
			retries.Set(one.GetReason(), one.GetCount())
		}
		calls = append(calls, jsonvalue.NewObject(
			"call_id", call.GetCallId(),
			"total_us", timings.GetTotalUs(),
			"queue_us", timings.GetQueueUs(),
			"endpoint_us", timings.GetEndpointUs(),
			"retry_us", timings.GetRetryUs(),
			"retries", retries,
		))
	}
	if len(calls) > 0 {
		row.Set("model_calls", calls)
	}
}

// putTokenNotes says of the weights that wrote what is to be learned from, and of the forks, what
// there is. Other models have versions of their own.
func putTokenNotes(row *jsonvalue.Object, rollout *rolloutv1.Rollout) {
	versions := make(map[uint64]bool)
	forks := []any{}
	for _, call := range rollout.GetModelCalls() {
		if call.GetTrainable() {
			for _, span := range call.GetTokens().GetWeights() {
				versions[span.GetVersion()] = true
			}
		}
		if fork := call.GetTokens().GetFork(); fork != nil {
			forks = append(forks, jsonvalue.NewObject(
				"call_id", call.GetCallId(),
				"reason", enumName(fork.GetReason().String(), "FORK_REASON_"),
				"common_tokens", fork.GetCommonTokens(),
			))
		}
	}
	if len(versions) > 0 {
		sorted := slices.Sorted(maps.Keys(versions))
		row.Set("weights_versions", listOf(sorted, func(version uint64) any { return version }))
	}
	if len(forks) > 0 {
		row.Set("token_forks", forks)
	}
}
