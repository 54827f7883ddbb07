package rows

import (
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

type toolOutcome struct{ name, outcome string }

// toolOutcomes counts how the tool calls of each name were answered, in the order of the first ones.
type toolOutcomes struct {
	order []toolOutcome
	calls map[toolOutcome]int
}

// add counts an answer. An outcome of a later contract counts as UNSPECIFIED, as the contract has it.
func (t *toolOutcomes) add(answer *rolloutv1.ToolCallCompleted) {
	outcome := answer.GetOutcome()
	if _, known := rolloutv1.ToolOutcome_name[int32(outcome)]; !known {
		outcome = rolloutv1.ToolOutcome_TOOL_OUTCOME_UNSPECIFIED
	}
	key := toolOutcome{answer.GetName(), enumName(outcome.String(), "TOOL_OUTCOME_")}
	if t.calls == nil {
		t.calls = make(map[toolOutcome]int)
	}
	if t.calls[key] == 0 {
		t.order = append(t.order, key)
	}
	t.calls[key]++
}

func (t *toolOutcomes) list() []any {
	list := []any{}
	for _, one := range t.order {
		list = append(list, jsonvalue.NewObject(
			"name", one.name, "outcome", one.outcome, "calls", t.calls[one]))
	}
	return list
}
