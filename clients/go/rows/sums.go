package rows

import (
	"maps"
	"slices"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
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
		row.Timings.ModelUs += call.GetTimings().GetTotalUs()
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
		row.Timings.ToolsUs += answer.GetTimings().GetTotalUs()
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
	var all, sums []*rolloutv1.ModelCallUsage
	for _, turn := range rollout.GetTurns() {
		all = append(all, turn.GetModelUsage()...)
	}
	all = append(all, rollout.GetVerified().GetVerification().GetModelUsage()...)
	others := &errorsv1.ModelUsage{}
	detailOf(failed, others)
	for _, entry := range append(all, others.GetUsage()...) {
		place := slices.IndexFunc(sums, func(one *rolloutv1.ModelCallUsage) bool {
			return one.Model == entry.GetModel()
		})
		if place < 0 {
			sums = append(sums, proto.CloneOf(entry))
			continue
		}
		sums[place].Calls += entry.GetCalls()
		sums[place].InputTokens += entry.GetInputTokens()
		sums[place].OutputTokens += entry.GetOutputTokens()
	}
	return sums
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
	sum := &rowv1.UsageSum{}
	for _, call := range calls {
		usage := call.GetResponse().GetUsage()
		sum.InputTokens += usage.GetInputTokens()
		sum.CachedTokens += usage.GetCachedTokens()
		sum.OutputTokens += usage.GetOutputTokens()
		sum.ReasoningTokens += usage.GetReasoningTokens()
	}
	sum.TotalTokens = sum.InputTokens + sum.OutputTokens
	return sum
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
