// Command collect collects verified rollouts of a task file from agents of the mesh.
//
//	collect --agent TARGET --input tasks.jsonl --output rows.jsonl [--failures failures.jsonl]
//	    [--num-repeats N] [--concurrency C] [--deadline-s S] [--call-per-rollout]
//	    [--ca ca.pem] [--cert own.pem --key own.key] [--server-name NAME] [--token-file FILE]
//
// TARGET is host:port or any other target of gRPC, such as xds:///agent.NAME; --agent may be repeated.
// Rows are those of gym-cli. One line of JSON on standard output sums up. It exits with 0 when every
// rollout completed, 3 when some failed, 1 when none completed, 2 when it was called wrongly or the
// tasks are wrong, and 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/codec"
	"github.com/gymmesh/gymmesh/clients/go/collect"
	"github.com/gymmesh/gymmesh/clients/go/jsonvalue"
	"github.com/gymmesh/gymmesh/clients/go/mesh"
	_ "github.com/gymmesh/gymmesh/clients/go/mesh/xds" // so that xds:///… can be dialled
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
	"github.com/gymmesh/gymmesh/clients/go/rows"
)

const (
	exitNothing     = 1
	exitUsage       = 2
	exitFailures    = 3
	exitInterrupted = 130

	// How long the first agent may take to say what it is.
	firstAnswer = 15 * time.Second
	// Streams to a target that may be balanced over several agents.
	balancedStreams = 8
)

type settings struct {
	agents                  []string
	input, output, failures string
	repeats, concurrency    int
	deadline                time.Duration
	streams                 int
	callPerRollout          bool
	credentials             mesh.Credentials
	runID                   string
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(arguments []string, stdout, stderr io.Writer) int {
	settings, err := parse(arguments, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := settings.collect(ctx, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "collect:", err)
	}
	return code
}

func parse(arguments []string, stderr io.Writer) (*settings, error) {
	var s settings
	var seconds float64
	flags := flag.NewFlagSet("collect", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("agent", "`target` of an agent, host:port or xds:///agent.NAME; may be repeated",
		func(target string) error { s.agents = append(s.agents, target); return nil })
	flags.StringVar(&s.input, "input", "", "`file` with a task on each line")
	flags.StringVar(&s.output, "output", "", "`file` for the rows of completed rollouts")
	flags.StringVar(&s.failures, "failures", "", "`file` for the rows of failed rollouts")
	flags.IntVar(&s.repeats, "num-repeats", 1, "rollouts per task")
	flags.IntVar(&s.concurrency, "concurrency", 64, "the most rollouts in flight")
	flags.Float64Var(&seconds, "deadline-s", 900, "how long an attempt may take")
	flags.IntVar(&s.streams, "streams", 0, "streams to each target; 0: 1 for an address, 8 for a name")
	flags.BoolVar(&s.callPerRollout, "call-per-rollout", false,
		"a call of RunRollout for each rollout, which gRPC balances by itself, rather than streams")
	flags.StringVar(&s.credentials.Authority, "ca", "",
		"`file` of the authority that signed the agents' certificates; turns TLS on")
	flags.StringVar(&s.credentials.Certificate, "cert", "", "`file` of the own certificate")
	flags.StringVar(&s.credentials.Key, "key", "", "`file` of its key")
	flags.StringVar(&s.credentials.ServerName, "server-name", "",
		"the `name` in the agents' certificate, where it is not the host")
	flags.StringVar(&s.credentials.TokenFile, "token-file", "", "`file` with the bearer token")
	flags.StringVar(&s.runID, "run-id", "", "the run's id; empty: made from the time")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	s.deadline = time.Duration(seconds * float64(time.Second))
	switch {
	case len(s.agents) == 0 || s.input == "" || s.output == "":
		return nil, errors.New("--agent, --input and --output are needed")
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unknown option %q", flags.Arg(0))
	case s.repeats < 1 || s.concurrency < 1 || s.deadline <= 0 || s.streams < 0:
		return nil, errors.New("numbers must be positive")
	}
	if s.runID == "" {
		s.runID = time.Now().UTC().Format("20060102-150405.000000000")
	}
	if s.streams == 0 {
		s.streams = 1
		if strings.Contains(s.agents[0], ":///") {
			s.streams = balancedStreams
		}
	}
	return &s, nil
}

func (s *settings) collect(ctx context.Context, stdout, stderr io.Writer) (int, error) {
	var agents []grpc.ClientConnInterface
	for _, target := range s.agents {
		options, err := s.credentials.DialOptions(target)
		if err != nil {
			return exitUsage, err
		}
		conn, err := mesh.Dial(target, options...)
		if err != nil {
			return exitUsage, fmt.Errorf("%s: %w", target, err)
		}
		defer conn.Close()
		agents = append(agents, conn)
	}
	defaults, err := askDefaults(ctx, agents[0])
	if err != nil {
		return exitNothing, fmt.Errorf("%s: %w", s.agents[0], err)
	}
	tasks, err := readTasks(s.input, defaults, stderr)
	if err != nil {
		return exitUsage, err
	}
	out, err := newOutput(s.output, s.failures, stderr)
	if err != nil {
		return exitUsage, err
	}
	defer out.close()
	begun := time.Now()
	options := collect.Options{
		RunID: s.runID, Concurrency: s.concurrency, Deadline: s.deadline, Streams: s.streams,
		CallPerRollout: s.callPerRollout,
	}
	for outcome, err := range collect.Run(ctx, agents, s.jobs(tasks), options) {
		if err != nil {
			return exitInterrupted, err
		}
		if err := out.write(outcome); err != nil {
			return exitNothing, err
		}
	}
	if err := out.sync(); err != nil {
		return exitNothing, err
	}
	return out.sumUp(stdout, time.Since(begun))
}

// askDefaults asks the agent for its name and for the environment of tasks that name none.
func askDefaults(ctx context.Context, agent grpc.ClientConnInterface) (rows.TaskDefaults, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	about, err := agentv1.NewAgentServiceClient(agent).
		GetAgent(ctx, &agentv1.GetAgentRequest{})
	if err != nil {
		return rows.TaskDefaults{}, mesherr.FromError(err)
	}
	return rows.TaskDefaults{
		Environment: about.GetDefaultEnvironment(), Agent: about.GetName(),
	}, nil
}

// readTasks reads the whole file before anything runs, and reports every mistake in it.
func readTasks(
	path string, defaults rows.TaskDefaults, stderr io.Writer,
) ([]*rolloutv1.Task, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var tasks []*rolloutv1.Task
	mistakes := 0
	for task, err := range rows.ReadTasks(file, defaults) {
		if err != nil {
			mistakes++
			fmt.Fprintf(stderr, "%s: %v\n", path, err)
			continue
		}
		tasks = append(tasks, task)
	}
	if mistakes > 0 {
		return nil, fmt.Errorf("%s: %d rows cannot be used", path, mistakes)
	}
	return tasks, nil
}

func (s *settings) jobs(tasks []*rolloutv1.Task) iter.Seq[collect.Job] {
	return func(yield func(collect.Job) bool) {
		for _, task := range tasks {
			for repeat := range s.repeats {
				job := collect.Job{
					Task:        task,
					RolloutID:   fmt.Sprintf("%s/%s/%d", s.runID, task.GetTaskId(), repeat),
					RepeatIndex: uint32(repeat),
				}
				if !yield(job) {
					return
				}
			}
		}
	}
}

// output writes rows as rollouts end, and counts them.
type output struct {
	rows, failures    *os.File
	stderr            io.Writer
	completed, failed int
	agents            map[string]int
	agentsInOrder     []string
}

func newOutput(path, failures string, stderr io.Writer) (*output, error) {
	out := &output{stderr: stderr, agents: make(map[string]int)}
	var err error
	if out.rows, err = os.Create(path); err != nil {
		return nil, err
	}
	if failures != "" {
		if out.failures, err = os.Create(failures); err != nil {
			out.rows.Close()
			return nil, err
		}
	}
	return out, nil
}

func (o *output) write(outcome *collect.Outcome) error {
	if id := outcome.AgentInstanceID; id != "" {
		if o.agents[id] == 0 {
			o.agentsInOrder = append(o.agentsInOrder, id)
		}
		o.agents[id]++
	}
	outcome, line, err := lineOf(outcome)
	if err != nil {
		return err
	}
	file := o.rows
	if outcome.Failure == nil {
		o.completed++
	} else {
		o.failed++
		fmt.Fprintf(o.stderr, "%s failed: %s\n", outcome.Job.RolloutID, mesherr.Describe(outcome.Failure))
		file = o.failures
	}
	if file == nil {
		return nil
	}
	_, err = file.Write(append(line, '\n'))
	return err
}

// lineOf gives an outcome's row, and the outcome: one that cannot be written has become a failure.
func lineOf(outcome *collect.Outcome) (*collect.Outcome, []byte, error) {
	line, err := rowOf(outcome)
	if err != nil {
		outcome = outcome.Unwritable(err)
		line, err = rowOf(outcome)
	}
	return outcome, line, err
}

func rowOf(outcome *collect.Outcome) ([]byte, error) {
	row, err := rows.Of(outcome.Job.Task, outcome.Rollout, outcome.Failure)
	if err != nil {
		return nil, err
	}
	return codec.Marshal(row)
}

func (o *output) sync() error {
	err := o.rows.Sync()
	if o.failures != nil {
		err = errors.Join(err, o.failures.Sync())
	}
	return err
}

func (o *output) close() {
	o.rows.Close()
	if o.failures != nil {
		o.failures.Close()
	}
}

func (o *output) sumUp(stdout io.Writer, wall time.Duration) (int, error) {
	agents := &jsonvalue.Object{}
	for _, id := range o.agentsInOrder {
		agents.Set(id, o.agents[id])
	}
	line, err := jsonvalue.Write(jsonvalue.NewObject(
		"completed", o.completed, "failed", o.failed, "wall_s", wall.Seconds(), "agents", agents))
	if err != nil {
		return exitNothing, err
	}
	fmt.Fprintf(stdout, "%s\n", line)
	switch {
	case o.completed == 0:
		return exitNothing, nil
	case o.failed > 0:
		return exitFailures, nil
	default:
		return 0, nil
	}
}
