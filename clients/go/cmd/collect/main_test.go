package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Set, this test program is the command: gRPC reads the xDS bootstrap when a process starts.
const asCommand = "GYMMESH_TEST_COLLECT"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

type summary struct {
	Completed, Failed int
	Agents            map[string]int
}

// command is one call of the command in a folder with `tasks.jsonl`.
type command struct {
	folder    string
	arguments []string
	bootstrap string
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
	process := exec.CommandContext(t.Context(), os.Args[0], c.arguments...)
	process.Env = append(os.Environ(), asCommand+"=1", "GRPC_XDS_BOOTSTRAP_CONFIG="+c.bootstrap)
	var stdout, stderr bytes.Buffer
	process.Stdout, process.Stderr = &stdout, &stderr
	process.WaitDelay = 10 * time.Second
	_ = process.Run() // the exit code says it
	t.Logf("%s%s", &stdout, &stderr)
	var said summary
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
	}
	return process.ProcessState.ExitCode(), said
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
		{"a task is wrong", []string{task("a"), "{}"}, nil, 2, 0, 0},
		{"an option is wrong", nil, []string{"--num-repeats", "0"}, 2, 0, 0},
		{"an option is unknown", nil, []string{"--fast"}, 2, 0, 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			address, _ := (&testAgent{instance: "one"}).serve(t)
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
				if _, rewarded := row["reward"]; rewarded || row["failure"] == nil {
					t.Errorf("a failure's row: %v", row)
				}
			}
			if said.Agents["one"] != one.completed+one.failed {
				t.Errorf("agents: %v", said.Agents)
			}
		})
	}
}

func TestXDS(t *testing.T) {
	one, two := &testAgent{instance: "one"}, &testAgent{instance: "two"}
	addressOfOne, _ := one.serve(t)
	addressOfTwo, _ := two.serve(t)
	command := newCommand(t, "xds:///agent.tool_loop", []string{task("a")}, "--num-repeats", "200")
	command.bootstrap = serveXDS(t, "agent.tool_loop", addressOfOne, addressOfTwo)
	code, said := command.run(t)
	if code != 0 || said.Completed != 200 || said.Agents["one"] == 0 || said.Agents["two"] == 0 {
		t.Errorf("exit code %d, %+v", code, said)
	}
}

func TestXDSWithAnAgentThatDies(t *testing.T) {
	dying, other := &testAgent{instance: "dying", hangs: true}, &testAgent{instance: "other"}
	addressOfDying, stop := dying.serve(t)
	addressOfOther, _ := other.serve(t)
	command := newCommand(t, "xds:///agent.tool_loop", []string{task("a")}, "--num-repeats", "100")
	command.bootstrap = serveXDS(t, "agent.tool_loop", addressOfDying, addressOfOther)
	go func() {
		for dying.started.Load() < 5 {
			time.Sleep(time.Millisecond)
		}
		stop()
	}()
	code, said := command.run(t)
	if code != 0 || said.Completed != 100 || said.Agents["other"] != 100 {
		t.Errorf("exit code %d, %+v", code, said)
	}
	again := 0
	for _, row := range command.rows(t, "rows.jsonl") {
		if row["attempt"] == 2.0 {
			again++
		}
	}
	if again < 5 {
		t.Errorf("%d rollouts were run again", again)
	}
}
