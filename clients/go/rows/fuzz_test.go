package rows

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/internal/vectors"
)

// Whatever a line holds, it is a task that can be sent, or a problem.
func FuzzReadTask(f *testing.F) {
	f.Add([]byte(lineWith(`"task_id": 17, "seed": -1, "tags": {"a": "b"}, "agent": ["x"]`)))
	f.Add([]byte(`{"responses_create_params": {"input": [{"role": "user"}], "temperature": 1e300}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		task, err := ReadTask(line, TaskDefaults{Environment: "e", Agent: "a"})
		if err != nil {
			var problem *TaskProblem
			if !errors.As(err, &problem) {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		if _, err := proto.Marshal(task); err != nil {
			t.Fatalf("%q cannot be sent: %v", line, err)
		}
	})
}

func lineWith(keys string) string {
	return `{"responses_create_params": {"input": "hi"}, ` + keys + `}`
}

// Whatever an agent sends for a rollout, it has a row that can be written, or an error.
func FuzzRows(f *testing.F) {
	for _, one := range vectors.Folds(f) {
		rollout := &rolloutv1.Rollout{}
		if one.Rollout != nil && protojson.Unmarshal(one.Rollout, rollout) == nil {
			bytes, _ := proto.Marshal(rollout)
			f.Add(bytes, []byte(`{"metadata": {"timings": 1}, "reward": 1}`))
		}
	}
	f.Fuzz(func(t *testing.T, bytes, payload []byte) {
		rollout := &rolloutv1.Rollout{}
		if proto.Unmarshal(bytes, rollout) != nil {
			return
		}
		task := &rolloutv1.Task{TaskId: "t", PayloadJson: payload}
		for _, failure := range []*rolloutv1.Failure{nil, rollout.GetFailed().GetFailure()} {
			if row, err := Of(task, rollout, failure); err == nil {
				_, _ = codec.Marshal(row) // a reward that is not finite is an error
			}
		}
	})
}
