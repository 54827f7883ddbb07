package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// pantry is a session's state: how many of each item are on the shelves.
type pantry map[string]int64

var goods = []string{"bread", "jam", "rice", "tea"}

// The weights of the two parts of the reward.
const (
	shelvesWeight = 0.8
	answerWeight  = 0.2
)

const longestWaitS = 30

// Tools as the model is shown them, in this order.
var toolTexts = []string{
	`{"type": "function", "name": "stock", "description": "Puts some of an item onto the shelves.",
	  "parameters": {"type": "object", "properties": {
	    "item": {"type": "string", "description": "bread, jam, rice or tea"},
	    "count": {"type": "integer", "minimum": 1, "default": 1}},
	  "required": ["item"], "additionalProperties": false}}`,
	`{"type": "function", "name": "look", "description": "Says what is on the shelves.",
	  "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}`,
	`{"type": "function", "name": "wait", "description": "Lets some time pass.",
	  "parameters": {"type": "object", "properties": {
	    "seconds": {"type": "number", "minimum": 0, "maximum": 30}},
	  "required": ["seconds"], "additionalProperties": false}}`,
}

func pantryTools() []*responsesv1.Tool {
	var tools []*responsesv1.Tool
	for _, text := range toolTexts {
		tool := &responsesv1.Tool{}
		if err := codec.Unmarshal([]byte(text), tool); err != nil {
			panic(err) // the texts above are constants
		}
		tools = append(tools, tool)
	}
	return tools
}

// toolMistake is what the model did wrong; it is shown to it.
type toolMistake struct {
	outcome rolloutv1.ToolOutcome
	text    string
}

func (m *toolMistake) Error() string { return m.text }

func badArguments(format string, arguments ...any) error {
	return &toolMistake{
		rolloutv1.ToolOutcome_TOOL_OUTCOME_BAD_ARGUMENTS, fmt.Sprintf(format, arguments...),
	}
}

func toolError(format string, arguments ...any) error {
	return &toolMistake{
		rolloutv1.ToolOutcome_TOOL_OUTCOME_TOOL_ERROR, fmt.Sprintf(format, arguments...),
	}
}

// callTool runs a tool in a session. What the model did wrong is a *toolMistake.
func callTool(caller *session, name string, arguments []byte) (string, error) {
	tools := map[string]func(*session, *jsonvalue.Object) (string, error){
		"stock": stock, "look": look, "wait": wait,
	}
	run := tools[name]
	if run == nil {
		return "", &toolMistake{
			rolloutv1.ToolOutcome_TOOL_OUTCOME_UNKNOWN_TOOL,
			fmt.Sprintf("There is no tool %q; there are stock, look and wait.", name),
		}
	}
	if len(arguments) == 0 && name == "look" {
		arguments = []byte("{}")
	}
	object, err := jsonvalue.ParseObject(arguments)
	if err != nil {
		return "", badArguments("The arguments must be a JSON object: %v.", err)
	}
	return run(caller, object)
}

func stock(session *session, arguments *jsonvalue.Object) (string, error) {
	if err := only(arguments, "item", "count"); err != nil {
		return "", err
	}
	value, _ := arguments.Get("item")
	item, ok := value.(string)
	if !ok {
		return "", badArguments("item must be a string.")
	}
	count := int64(1)
	if value, found := arguments.Get("count"); found {
		if count, ok = value.(int64); !ok || count < 1 {
			return "", badArguments("count must be a whole number of at least 1.")
		}
	}
	if !slices.Contains(goods, item) {
		return "", toolError("There is no %q to be had, only %s.", item, strings.Join(goods, ", "))
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	if count > math.MaxInt32-session.pantry[item] {
		return "", toolError("The shelves don't hold so much.")
	}
	session.pantry[item] += count
	return fmt.Sprintf("%d x %s on the shelves.", session.pantry[item], item), nil
}

func look(session *session, arguments *jsonvalue.Object) (string, error) {
	if err := only(arguments); err != nil {
		return "", err
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	if len(session.pantry) == 0 {
		return "The shelves are empty.", nil
	}
	var lines []string
	for _, item := range slices.Sorted(maps.Keys(session.pantry)) {
		lines = append(lines, fmt.Sprintf("%d x %s", session.pantry[item], item))
	}
	return strings.Join(lines, ", "), nil
}

func wait(session *session, arguments *jsonvalue.Object) (string, error) {
	if err := only(arguments, "seconds"); err != nil {
		return "", err
	}
	value, _ := arguments.Get("seconds")
	seconds, ok := value.(float64)
	if whole, isWhole := value.(int64); isWhole {
		seconds, ok = float64(whole), true
	}
	if !ok || seconds < 0 || seconds > longestWaitS {
		return "", badArguments("seconds must be a number from 0 to %d.", longestWaitS)
	}
	select {
	case <-session.ctx.Done():
		return "", context.Cause(session.ctx)
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return "Time has passed.", nil
	}
}

// only refuses arguments of other names.
func only(arguments *jsonvalue.Object, names ...string) error {
	for key := range arguments.All() {
		if !slices.Contains(names, key) {
			return badArguments("There is no argument %q.", key)
		}
	}
	return nil
}

// wantedOf reads what a task wants on the shelves: `wanted`, an object of counts.
func wantedOf(task *rolloutv1.Task) (pantry, error) {
	payload, err := jsonvalue.ParseObject(task.GetPayloadJson())
	if err != nil {
		return nil, err
	}
	value, _ := payload.Get("wanted")
	object, ok := value.(*jsonvalue.Object)
	if !ok || object.Len() == 0 {
		return nil, errors.New("the task needs `wanted`, an object of counts by item")
	}
	wanted := make(pantry)
	for item, value := range object.All() {
		count, ok := value.(int64)
		if !ok || count < 1 || !slices.Contains(goods, item) {
			return nil, fmt.Errorf("`wanted` has %q, which cannot be stocked", item)
		}
		wanted[item] = count
	}
	return wanted, nil
}

// judge gives the verdict: the share of items, wanted or there, whose count is right, and whether the
// last answer says how many there are in all.
func judge(wanted, got pantry, transcript []*responsesv1.Item) *rolloutv1.Verification {
	items := make(map[string]bool)
	total, right := int64(0), 0
	for item, count := range wanted {
		items[item] = true
		total += count
	}
	for item := range got {
		items[item] = true
	}
	for item := range items {
		if wanted[item] == got[item] {
			right++
		}
	}
	shelves := float64(right) / float64(len(items))
	answer := 0.0
	if says(lastAnswer(transcript), fmt.Sprint(total)) {
		answer = 1
	}
	evidence, _ := jsonvalue.Write(jsonvalue.NewObject("items_right", right, "items", len(items)))
	reward := shelvesWeight*shelves + answerWeight*answer
	return &rolloutv1.Verification{
		Status: rolloutv1.VerificationStatus_VERIFICATION_STATUS_VERIFIED,
		Reward: &reward,
		Components: []*rolloutv1.RewardComponent{
			{Name: "shelves", Value: shelves, Weight: new(shelvesWeight)},
			{Name: "answer", Value: answer, Weight: new(answerWeight)},
		},
		EvidenceJson:    evidence,
		Verifier:        "pantry",
		VerifierVersion: version,
	}
}

func lastAnswer(transcript []*responsesv1.Item) string {
	for _, item := range slices.Backward(transcript) {
		if item.GetMessage().GetRole() == "assistant" {
			text, err := codec.TextOf(item)
			if err != nil { // what cannot be read says nothing
				return ""
			}
			return text
		}
	}
	return ""
}

// says tells whether a text is a number and nothing else. A text that has the number among other
// words may as well deny it.
func says(text, number string) bool {
	return strings.TrimSuffix(strings.TrimSpace(text), ".") == number
}
