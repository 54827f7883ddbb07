package rows

import (
	"maps"
	"math"
	"math/big"
	"math/bits"
	"slices"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	rowv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/row/v1"
)

// metadataOf sums up a rollout.
func metadataOf(rollout *rolloutv1.Rollout, verified bool) *rowv1.RowMetadata {
	row := &rowv1.RowMetadata{
		Verified: verified,
		Timings: &rowv1.RowTimings{
			StartedAt: startedAt(rollout),
			// One of the two is 0.
			DurationUs: rollout.GetCompleted().GetDurationUs() + rollout.GetFailed().GetDurationUs(),
			VerifyUs:   rollout.GetVerified().GetTimings().GetTotalUs(),
		},
	}
	if started := rollout.GetStarted(); started != nil {
		row.Seed = started.Seed
	}
	versions := make(map[uint64]bool)
	for _, call := range rollout.GetModelCalls() {
		row.Timings.ModelUs = addUnsigned(row.Timings.ModelUs, call.GetTimings().GetTotalUs())
		if call.GetActor() == "" {
			row.StepsTaken++
		}
		for _, span := range call.GetTokens().GetWeights() {
			if call.GetTrainable() {
				versions[span.GetVersion()] = true
			}
		}
	}
	row.WeightsVersions = slices.Sorted(maps.Keys(versions))
	for _, record := range rollout.GetToolCalls() {
		answer := record.GetCompleted()
		row.Timings.ToolsUs = addUnsigned(row.Timings.ToolsUs, answer.GetTimings().GetTotalUs())
		if !slices.Contains(row.ToolsUsed, answer.GetName()) {
			row.ToolsUsed = append(row.ToolsUsed, answer.GetName())
		}
		row.ToolOutcomes = countOutcome(row.ToolOutcomes, answer)
	}
	return row
}

// startedAt is in seconds since 1970.
func startedAt(rollout *rolloutv1.Rollout) float64 {
	return float64(rollout.GetStartedUnixNano()) / 1e9
}

func countOutcome(
	counts []*rowv1.ToolOutcomeCount, answer *rolloutv1.ToolCallCompleted,
) []*rowv1.ToolOutcomeCount {
	outcome := answer.GetOutcome()
	if _, known := rolloutv1.ToolOutcome_name[int32(outcome)]; !known {
		outcome = rolloutv1.ToolOutcome_TOOL_OUTCOME_UNSPECIFIED
	}
	place := slices.IndexFunc(counts, func(one *rowv1.ToolOutcomeCount) bool {
		return one.Name == answer.GetName() && one.Outcome == outcome
	})
	if place < 0 {
		place = len(counts)
		counts = append(counts, &rowv1.ToolOutcomeCount{Name: answer.GetName(), Outcome: outcome})
	}
	counts[place].Calls++
	return counts
}

// usageByModel sums what the environment's own model calls consumed: for turns, the verdict, and a turn or
// verdict that failed, which is a further detail of its status.
func usageByModel(rollout *rolloutv1.Rollout, failed *spb.Status) []*rolloutv1.ModelCallUsage {
	var all []*rolloutv1.ModelCallUsage
	for _, turn := range rollout.GetTurns() {
		all = append(all, turn.GetModelUsage()...)
	}
	all = append(all, rollout.GetVerified().GetVerification().GetModelUsage()...)
	others := &errorsv1.ModelUsage{}
	detailOf(failed, others)
	byModel := make(map[string][]*rolloutv1.ModelCallUsage)
	var models []string // in the order in which they came
	for _, entry := range append(all, others.GetUsage()...) {
		if byModel[entry.GetModel()] == nil {
			models = append(models, entry.GetModel())
		}
		byModel[entry.GetModel()] = append(byModel[entry.GetModel()], entry)
	}
	var sums []*rolloutv1.ModelCallUsage
	for _, model := range models {
		entries := byModel[model]
		calls := uint64(0)
		for _, entry := range entries {
			calls = addUnsigned(calls, uint64(entry.GetCalls()))
		}
		sums = append(sums, &rolloutv1.ModelCallUsage{
			Model: model, Calls: uint32(min(calls, math.MaxUint32)),
			InputTokens:  sumOf(entries, (*rolloutv1.ModelCallUsage).GetInputTokens),
			OutputTokens: sumOf(entries, (*rolloutv1.ModelCallUsage).GetOutputTokens),
		})
	}
	return sums
}

// sumOf returns the sum of a number of each, or the int64 nearest to it.
func sumOf[T any](all []T, number func(T) int64) int64 {
	total := new(big.Int)
	for _, one := range all {
		total.Add(total, big.NewInt(number(one)))
	}
	switch {
	case total.IsInt64():
		return total.Int64()
	case total.Sign() < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}

// addUnsigned returns the sum, or the largest uint64.
func addUnsigned(one, other uint64) uint64 {
	sum, carry := bits.Add64(one, other, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return sum
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

func usageOf(calls []*rolloutv1.ModelCallCompleted) *rowv1.UsageSum {
	var usages []*responsesv1.Usage
	for _, call := range calls {
		usages = append(usages, call.GetResponse().GetUsage())
	}
	read := sumOf(usages, (*responsesv1.Usage).GetInputTokens)
	wrote := sumOf(usages, (*responsesv1.Usage).GetOutputTokens)
	return &rowv1.UsageSum{
		InputTokens:     read,
		CachedTokens:    sumOf(usages, (*responsesv1.Usage).GetCachedTokens),
		OutputTokens:    wrote,
		ReasoningTokens: sumOf(usages, (*responsesv1.Usage).GetReasoningTokens),
		TotalTokens:     sumOf([]int64{read, wrote}, func(one int64) int64 { return one }),
	}
}

// actorsOf gives those beside the root agent that called models, in the order of their names. The verdict
// is nil for a failed rollout, whose actors have no reward either.
func actorsOf(rollout *rolloutv1.Rollout, verdict *rolloutv1.Verification) []*rowv1.Actor {
	byName := make(map[string][]*rolloutv1.ModelCallCompleted)
	for _, call := range rollout.GetModelCalls() {
		byName[call.GetActor()] = append(byName[call.GetActor()], call)
	}
	delete(byName, "")
	var actors []*rowv1.Actor
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		calls := byName[name]
		actor := &rowv1.Actor{Name: name, ModelCalls: uint32(len(calls)), Usage: usageOf(calls)}
		for _, call := range calls {
			actor.Trainable = actor.Trainable || call.GetTrainable()
			actor.Models = append(actor.Models, call.GetModel())
		}
		slices.Sort(actor.Models)
		actor.Models = slices.Compact(actor.Models)
		for _, part := range verdict.GetComponents() {
			if part.GetName() == name {
				actor.Reward = proto.Float64(part.GetValue())
			}
		}
		actors = append(actors, actor)
	}
	return actors
}
