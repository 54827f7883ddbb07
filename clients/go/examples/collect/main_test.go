package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

type summary struct {
	Completed, Failed int
	Agents            map[string]int
}

// command is one call of the command in a folder with `tasks.jsonl`.
type command struct {
	folder    string
	arguments []string
}

func newCommand(t *testing.T, target string, tasks []string, arguments ...string) *command {
	t.Helper()
	c := &command{folder: t.TempDir()}
	var file bytes.Buffer
	for _, task := range tasks {
		fmt.Fprintln(&file, task)
	}
	if err := os.WriteFile(c.path("tasks.jsonl"), file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	c.arguments = append([]string{
		"--agent", target, "--input", c.path("tasks.jsonl"), "--output", c.path("rows.jsonl"),
		"--failures", c.path("failures.jsonl"),
	}, arguments...)
	return c
}

func (c *command) path(name string) string { return filepath.Join(c.folder, name) }

// run runs it to its end and gives its exit code and what it sums up.
func (c *command) run(t *testing.T) (int, summary) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(c.arguments, &stdout, &stderr)
	t.Logf("%s%s", &stdout, &stderr)
	var said summary
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
	}
	return code, said
}

func (c *command) rows(t *testing.T, name string) []map[string]any {
	t.Helper()
	file, err := os.Open(c.path(name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var rows []map[string]any
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var row map[string]any
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func task(id string) string {
	return fmt.Sprintf(`{"task_id": %q, "responses_create_params": {"input": "hi"}}`, id)
}

func TestExitCodes(t *testing.T) {
	for _, one := range []struct {
		name              string
		tasks             []string
		arguments         []string
		code              int
		completed, failed int
	}{
		{"all complete", []string{task("a"), task("b")}, []string{"--num-repeats", "3"}, 0, 6, 0},
		{"some fail", []string{task("a"), task("fails")}, nil, 3, 1, 1},
		{"none completes", []string{task("fails")}, nil, 1, 0, 1},
		{"one cannot be written", []string{task("a"), task("unwritable"), task("b")}, nil, 3, 2, 1},
		{"a task is wrong", []string{task("a"), "{}"}, nil, 2, 0, 0},
		{"an option is wrong", nil, []string{"--num-repeats", "0"}, 2, 0, 0},
		{"an option is unknown", nil, []string{"--fast"}, 2, 0, 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			address := (&testAgent{instance: "one"}).serve(t)
			command := newCommand(t, address, one.tasks, one.arguments...)
			code, said := command.run(t)
			if code != one.code || said.Completed != one.completed || said.Failed != one.failed {
				t.Fatalf("exit code %d, %+v", code, said)
			}
			if code == 2 {
				return
			}
			if rows := command.rows(t, "rows.jsonl"); len(rows) != one.completed {
				t.Errorf("%d rows", len(rows))
			}
			for _, row := range command.rows(t, "failures.jsonl") {
				if row["reward"] != nil || row["failure"] == nil {
					t.Errorf("a failure's row: %v", row)
				}
			}
			if said.Agents["one"] != one.completed+one.failed {
				t.Errorf("agents: %v", said.Agents)
			}
		})
	}
}
