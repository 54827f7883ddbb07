// Package rows reads task files and writes rollouts as rows of JSON lines, as gym-cli does.
package rows

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"slices"
	"unicode/utf8"

	"golang.org/x/crypto/blake2b"

	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
)

// MaxRowBytes is the length of the longest line of a task file: a longer one would not fit a message
// of the mesh.
const MaxRowBytes = 64 << 20

const (
	paramsKey = "responses_create_params"
	// promptKey may replace parameters with only this input.
	promptKey = "prompt"
)

var taskKeys = []string{"task_id", "environment", "agent", "seed", "tags"}

// TaskDefaults apply if a row names no environment or agent.
type TaskDefaults struct {
	Environment string
	Agent       string
}

// TaskProblem says what is wrong with a row of a task file.
type TaskProblem struct {
	// Line is counted from 1.
	Line int
	// Key is the place in the row; empty for the whole of it.
	Key      string
	Sentence string
}

func (p *TaskProblem) Error() string {
	if p.Key == "" {
		return fmt.Sprintf("line %d: %s", p.Line, p.Sentence)
	}
	return fmt.Sprintf("line %d: %s: %s", p.Line, p.Key, p.Sentence)
}

// ReadTasks reads a task file row by row; blank lines are skipped. A *TaskProblem is one row's, and
// reading goes on after it; any other error ends it.
func ReadTasks(file io.Reader, defaults TaskDefaults) iter.Seq2[*rolloutv1.Task, error] {
	return func(yield func(*rolloutv1.Task, error) bool) {
		lines := bufio.NewScanner(file)
		lines.Buffer(make([]byte, 0, 64<<10), MaxRowBytes+1)
		seen, copies := make(map[string]int), make(map[string]int)
		line := 0
		for lines.Scan() {
			line++
			row := lines.Bytes()
			if line == 1 {
				row = bytes.TrimPrefix(row, []byte("\xef\xbb\xbf"))
			}
			if row = bytes.TrimSpace(row); len(row) == 0 {
				continue
			}
			task, err := readTask(row, defaults, copies)
			if err == nil {
				if first, found := seen[task.GetTaskId()]; found {
					err = mistake("task_id", "%q is the id of line %d already", task.GetTaskId(), first)
				}
				seen[task.GetTaskId()] = line
			}
			var problem *TaskProblem
			if errors.As(err, &problem) {
				problem.Line = line
			}
			if err != nil {
				task = nil
			}
			if !yield(task, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("line %d: %w", line+1, err))
		}
	}
}

// ReadTask reads one row of a task file.
func ReadTask(row []byte, defaults TaskDefaults) (*rolloutv1.Task, error) {
	return readTask(row, defaults, make(map[string]int))
}

func readTask(row []byte, defaults TaskDefaults, copies map[string]int) (*rolloutv1.Task, error) {
	value, err := jsonvalue.Parse(row)
	if err != nil {
		return nil, mistake("", "%v; every line must hold one JSON object", err)
	}
	object, ok := value.(*jsonvalue.Object)
	if !ok {
		return nil, mistake("", "holds %s; every line must hold one JSON object", jsonvalue.NameOf(value))
	}
	task := &rolloutv1.Task{}
	if task.Params, err = readParams(object); err != nil {
		return nil, err
	}
	if task.TaskId, err = taskID(object, copies); err != nil {
		return nil, err
	}
	if task.Environment, err = nameIn(object, "environment", defaults.Environment); err != nil {
		return nil, err
	}
	if task.Agent, err = nameIn(object, "agent", defaults.Agent); err != nil {
		return nil, err
	}
	if err = readLabels(task, object); err != nil {
		return nil, err
	}
	task.PayloadJson, err = jsonvalue.Write(payloadOf(object))
	return task, err
}

func mistake(key, format string, args ...any) error {
	return &TaskProblem{Key: key, Sentence: fmt.Sprintf(format, args...)}
}

func readLabels(task *rolloutv1.Task, row *jsonvalue.Object) error {
	switch seed, _ := row.Get("seed"); seed := seed.(type) {
	case nil:
	case int64:
		task.Seed = &seed
	default:
		return mistake("seed", "must be a whole number of 64 bits, not %s", jsonvalue.NameOf(seed))
	}
	tags, _ := row.Get("tags")
	if tags == nil {
		return nil
	}
	const sentence = "must be an object whose values are strings; rename it if it is the verifier's"
	object, ok := tags.(*jsonvalue.Object)
	if !ok {
		return mistake("tags", sentence)
	}
	task.Tags = make(map[string]string)
	for key, value := range object.All() {
		text, ok := value.(string)
		if !ok || !utf8.ValidString(text) || !utf8.ValidString(key) {
			return mistake("tags", sentence)
		}
		task.Tags[key] = text
	}
	return nil
}

// conversationKey is the key that holds the prompt: a prompt beside parameters is the verifier's.
func conversationKey(row *jsonvalue.Object) string {
	_, params := row.Get(paramsKey)
	if _, prompt := row.Get(promptKey); prompt && !params {
		return promptKey
	}
	return paramsKey
}

// payloadOf returns the payload for the verifier: all keys that are not read here.
func payloadOf(row *jsonvalue.Object) *jsonvalue.Object {
	payload := &jsonvalue.Object{}
	conversation := conversationKey(row)
	for key, value := range row.All() {
		if key != conversation && (!slices.Contains(taskKeys, key) || isVerifiers(key, value)) {
			payload.Set(key, value)
		}
	}
	return payload
}

// isVerifiers says whether one of our own keys has a value that the verifier is to see as it is.
func isVerifiers(key string, value any) bool {
	switch value.(type) {
	case int64, *big.Int:
		return key == "task_id"
	case *jsonvalue.Object, []any:
		return key == "environment" || key == "agent"
	default:
		return false
	}
}

// nameIn gives what the row names; an object or a list names nothing and is the verifier's.
func nameIn(row *jsonvalue.Object, key, standard string) (string, error) {
	switch value, _ := row.Get(key); value := value.(type) {
	case nil, *jsonvalue.Object, []any:
		if standard == "" {
			return "", mistake(key, "the row names no %s and there is no default", key)
		}
		return standard, nil
	case string:
		return value, checkText(key, value)
	default:
		return "", mistake(key, "must be a string, not %s", jsonvalue.NameOf(value))
	}
}

func checkText(key, text string) error {
	if text == "" {
		return mistake(key, "is empty; leave the key out or give a name")
	}
	if !utf8.ValidString(text) {
		return mistake(key, "holds an unpaired surrogate")
	}
	return nil
}

func taskID(row *jsonvalue.Object, copies map[string]int) (string, error) {
	switch id, _ := row.Get("task_id"); id := id.(type) {
	case nil:
		return contentID(row, copies)
	case string:
		return id, checkText("task_id", id)
	case int64, *big.Int:
		return fmt.Sprint(id), nil
	default:
		return "", mistake("task_id", "must be a string, not %s", jsonvalue.NameOf(id))
	}
}

// contentID makes an id of the row's content; identical rows are told apart by a suffix.
func contentID(row *jsonvalue.Object, copies map[string]int) (string, error) {
	text, err := jsonvalue.Write(jsonvalue.Sorted(row))
	if err != nil {
		return "", err
	}
	digest, err := blake2b.New(16, nil)
	if err != nil {
		return "", err
	}
	digest.Write(text)
	name := "t-" + hex.EncodeToString(digest.Sum(nil))
	copies[name]++
	if count := copies[name]; count > 1 {
		return fmt.Sprintf("%s-%d", name, count), nil
	}
	return name, nil
}

// seedStep lies between the seeds of a task's repeats.
const seedStep = 1_000_003

// RepeatSeed returns a repeat's seed: the task's for repeat 0, another one for each further repeat.
func RepeatSeed(seed int64, repeatIndex uint32) int64 {
	return seed + seedStep*int64(repeatIndex) // wraps around on purpose
}
