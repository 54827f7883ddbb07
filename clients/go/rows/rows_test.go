package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	modelv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/model/v1"
	responsesv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/responses/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"
	rowv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/row/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
)

func message[T proto.Message](t *testing.T, text []byte, into T) T {
	t.Helper()
	if err := protojson.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestRowVectors(t *testing.T) {
	var cases struct {
		Task json.RawMessage
		Rows []struct {
			FoldVector string `json:"fold_vector"`
			Row        json.RawMessage
		}
		Answers []struct {
			About             string
			Rollout, Response json.RawMessage
		}
		Sums []struct {
			About        string
			Rollout, Row json.RawMessage
		}
		Logprobs []struct {
			About string
			JSON  string
			Bytes []byte
		}
		Tokens []struct {
			About   string
			Rollout json.RawMessage
			HasRow  bool `json:"has_row"`
		}
	}
	vectors.Read(t, "rows.json", &cases)
	if len(cases.Rows) == 0 || len(cases.Answers) == 0 || len(cases.Logprobs) == 0 ||
		len(cases.Tokens) == 0 || len(cases.Sums) == 0 {
		t.Fatal("no cases")
	}
	task := message(t, cases.Task, &rolloutv1.Task{})
	folds := vectors.Folds(t)
	for _, one := range cases.Rows {
		t.Run(one.FoldVector, func(t *testing.T) {
			rollout := message(t, folds[one.FoldVector].Rollout, &rolloutv1.Rollout{})
			row, err := Of(task, rollout, rollout.GetFailed().GetFailure())
			if err != nil {
				t.Fatal(err)
			}
			text, err := codec.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			vectors.SameDocument(t, text, one.Row)
			again := &rowv1.Row{}
			if err := codec.Unmarshal(one.Row, again); err != nil {
				t.Fatal(err)
			}
			if text, err = codec.Marshal(again); err != nil {
				t.Fatal(err)
			}
			vectors.SameDocument(t, text, one.Row)
			if len(again.GetCalls()) != len(row.GetCalls()) {
				t.Errorf("%d calls were read", len(again.GetCalls()))
			}
		})
	}
	for _, one := range cases.Answers {
		t.Run(one.About, func(t *testing.T) {
			row, err := Of(task, message(t, one.Rollout, &rolloutv1.Rollout{}), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := codec.Marshal(row.GetResponse())
			if err != nil {
				t.Fatal(err)
			}
			vectors.SameDocument(t, text, one.Response)
		})
	}
	for _, one := range cases.Sums {
		t.Run(one.About, func(t *testing.T) {
			row, err := Of(task, message(t, one.Rollout, &rolloutv1.Rollout{}), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := codec.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			vectors.SameDocument(t, text, one.Row)
		})
	}
	for _, one := range cases.Logprobs {
		t.Run(one.About, func(t *testing.T) {
			tokens := &modelv1.TokenCapture{}
			if err := codec.Unmarshal([]byte(`{"logprobs": `+one.JSON+`}`), tokens); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(tokens.GetLogprobs(), one.Bytes) {
				t.Errorf("%s: %x, not %x", one.JSON, tokens.GetLogprobs(), one.Bytes)
			}
		})
	}
	for _, one := range cases.Tokens {
		t.Run(one.About, func(t *testing.T) {
			row, err := Of(task, message(t, one.Rollout, &rolloutv1.Rollout{}), nil)
			if err == nil {
				_, err = codec.Marshal(row)
			}
			if (err == nil) != one.HasRow {
				t.Error(err)
			}
		})
	}
}

func TestARowOfWhatIsMissing(t *testing.T) {
	rollout := &rolloutv1.Rollout{
		RolloutId:  "r",
		Started:    &rolloutv1.Started{},
		ModelCalls: []*rolloutv1.ModelCallCompleted{{CallId: "c1", Model: "m"}}, // no answer
		Outcome:    &rolloutv1.Rollout_Completed{Completed: &rolloutv1.Completed{}},
	}
	row, err := Of(&rolloutv1.Task{TaskId: "t"}, rollout, nil) // no params
	if err != nil {
		t.Fatal(err)
	}
	if text := string(row.GetResponsesCreateParamsJson()); text != `{"tools":[],"input":[]}` {
		t.Error(text)
	}
}

// A rollout may fail because its calls form no conversation; its row has them all the same.
func TestAFailedRolloutWhoseCallsFormNoConversationKeepsThem(t *testing.T) {
	for _, parent := range []string{"unknown", "c1"} {
		rollout := &rolloutv1.Rollout{ModelCalls: []*rolloutv1.ModelCallCompleted{{
			CallId: "c1", ParentCallId: parent,
			Response: &responsesv1.Response{Output: []*responsesv1.Item{codec.NewMessage("assistant", "hi")}},
		}}}
		row, err := Of(&rolloutv1.Task{}, rollout, &rolloutv1.Failure{})
		if err != nil {
			t.Fatal(err)
		}
		call := row.GetCalls()[0]
		if len(row.GetResponse().GetOutput()) > 0 || len(call.GetItems()) != 1 || call.FirstItem != nil {
			t.Errorf("%s: %v", parent, row)
		}
		rollout.Outcome = &rolloutv1.Rollout_Completed{Completed: &rolloutv1.Completed{}}
		if _, err := Of(&rolloutv1.Task{}, rollout, nil); err == nil {
			t.Errorf("%s: a completed rollout has a row", parent)
		}
	}
}

func TestWhatTheFinalAnswerSaysOfItself(t *testing.T) {
	const cut = `{"reason":"max_output_tokens"}`
	for _, one := range []struct {
		answer, id, status, details string
		stop                        rolloutv1.StopReason
	}{
		{answer: `{"incomplete_details": {}}`, id: "r", status: "completed", details: `{}`},
		{answer: `{"incomplete_details": ""}`, id: "r", status: "completed", details: `""`},
		{answer: `{"incomplete_details": []}`, id: "r", status: "completed", details: `[]`},
		{answer: `{"incomplete_details": 0}`, id: "r", status: "completed", details: `0`},
		{answer: `{"incomplete_details": null}`, id: "r", status: "completed"},
		{answer: `{"incomplete_details": "cut"}`, id: "r", status: "incomplete", details: `"cut"`},
		{
			answer: `{"incomplete_details": 0}`, id: "r", status: "incomplete", details: cut,
			stop: rolloutv1.StopReason_STOP_REASON_MAX_OUTPUT_TOKENS,
		},
		{answer: `{"id": "a", "status": "queued"}`, id: "a", status: "queued"},
		{answer: `{"id": 1, "status": "\ud800"}`, id: "r", status: "completed"},
	} {
		answer := &responsesv1.Response{}
		if err := codec.Unmarshal([]byte(one.answer), answer); err != nil {
			t.Fatal(err)
		}
		row := rowOfAnswer(t, answer, one.stop).GetResponse()
		if row.GetId() != one.id || row.GetStatus() != one.status ||
			string(row.GetIncompleteDetailsJson()) != one.details {
			t.Errorf("%s: %v", one.answer, row)
		}
	}
	// A custom agent may say the same twice.
	answer := &responsesv1.Response{
		Id: proto.String("a"), Model: proto.String("b"), OverlayJson: []byte(`{"id": "c", "model": "d"}`),
	}
	row := rowOfAnswer(t, answer, rolloutv1.StopReason_STOP_REASON_UNSPECIFIED).GetResponse()
	if row.GetId() != "c" || row.GetModel() != "d" {
		t.Error(row)
	}
}

func rowOfAnswer(t *testing.T, answer *responsesv1.Response, stop rolloutv1.StopReason) *rowv1.Row {
	t.Helper()
	row, err := Of(&rolloutv1.Task{}, &rolloutv1.Rollout{
		RolloutId:  "r",
		ModelCalls: []*rolloutv1.ModelCallCompleted{{CallId: "c1", Response: answer}},
		Outcome:    &rolloutv1.Rollout_Completed{Completed: &rolloutv1.Completed{StopReason: stop}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func TestTaskVectors(t *testing.T) {
	var cases struct {
		Rows []struct {
			About, Row string
			Task       json.RawMessage
		}
		Seeds []struct {
			Seed, Sent  int64  `json:",string"`
			RepeatIndex uint32 `json:"repeat_index"`
		}
	}
	vectors.Read(t, "tasks.json", &cases)
	if len(cases.Rows) == 0 || len(cases.Seeds) == 0 {
		t.Fatal("no cases")
	}
	defaults := TaskDefaults{Environment: "default_environment", Agent: "default_agent"}
	for _, one := range cases.Rows {
		t.Run(one.About, func(t *testing.T) {
			task, err := ReadTask([]byte(one.Row), defaults)
			if err != nil {
				t.Fatal(err)
			}
			vectors.SameMessage(t, task, message(t, one.Task, &rolloutv1.Task{}))
		})
	}
	for _, one := range cases.Seeds {
		if got := RepeatSeed(one.Seed, one.RepeatIndex); got != one.Sent {
			t.Errorf("repeat %d of seed %d: %d, not %d", one.RepeatIndex, one.Seed, got, one.Sent)
		}
	}
}

func TestTaskFile(t *testing.T) {
	const params = `"responses_create_params":{"input":"hi"}`
	file := "\xef\xbb\xbf{" + params + "}\n\n  \n{" + params + "}\n{\"task_id\":\"a\"," + params +
		"}\r\n{\"task_id\":\"a\"," + params + "}\n[]\n{\"task_id\":\"b\"," + params + "}"
	var ids []string
	var lines []int
	for task, err := range ReadTasks(strings.NewReader(file), TaskDefaults{"e", "a"}) {
		var problem *TaskProblem
		if errors.As(err, &problem) {
			lines = append(lines, problem.Line)
		} else if err != nil {
			t.Fatal(err)
		} else {
			ids = append(ids, task.GetTaskId())
		}
	}
	if len(ids) != 4 || ids[1] != ids[0]+"-2" || ids[2] != "a" || ids[3] != "b" {
		t.Errorf("ids: %v", ids)
	}
	if len(lines) != 2 || lines[0] != 6 || lines[1] != 7 {
		t.Errorf("lines with problems: %v", lines)
	}
}

func TestTaskProblems(t *testing.T) {
	// Named, but where that is the mistake.
	environments := map[string]string{"seed": "e", "tags": "e", "agent": "e"}
	for row, key := range map[string]string{
		`{}`:                              "responses_create_params",
		`{"responses_create_params": []}`: "responses_create_params",
		`{"responses_create_params": {}}`: "responses_create_params.input",
		`{"responses_create_params": {"input": " "}}`:                              "responses_create_params.input",
		`{"responses_create_params": {"input": [1]}}`:                              "responses_create_params.input[0]",
		`{"responses_create_params": {"input": "x", "temperature": "hot"}}`:        "responses_create_params.temperature",
		`{"responses_create_params": {"input": "x", "max_output_tokens": 0}}`:      "responses_create_params.max_output_tokens",
		`{"responses_create_params": {"input": "x"}, "task_id": 1.5}`:              "task_id",
		`{"responses_create_params": {"input": "x"}, "task_id": ""}`:               "task_id",
		`{"responses_create_params": {"input": "x"}, "seed": 9223372036854775808}`: "seed",
		`{"responses_create_params": {"input": "x"}, "tags": {"a": 1}}`:            "tags",
		`{"responses_create_params": {"input": "x"}, "agent": 1}`:                  "agent",
		`{"responses_create_params": {"input": "x"}}`:                              "environment",
	} {
		_, err := ReadTask([]byte(row), TaskDefaults{Agent: "a", Environment: environments[key]})
		var problem *TaskProblem
		if !errors.As(err, &problem) || problem.Key != key {
			t.Errorf("%s: %v", row, err)
		}
	}
}
