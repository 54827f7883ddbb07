// Package collect runs rollouts at agents, many at a time: over AgentService.Collect, or RunRollout
// where that is not offered.
//
// If a connection breaks, the stream reconnects and resumes after the last received event. If the
// agent has lost the stream, its attempts fail and new ones are started, as after every failure
// that is safe to retry. Events without a terminal event are not data.
package collect

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/agent/v1"
	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	rolloutv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/rollout/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesh"
	"github.com/gymmesh/gymmesh/clients/go/mesherr"
	"github.com/gymmesh/gymmesh/clients/go/rollouts"
	"github.com/gymmesh/gymmesh/clients/go/rows"
)

// Options say how to collect. A value that is not above zero means the default.
type Options struct {
	// RunID is recorded in the rollouts and in the services' logs.
	RunID string
	// Concurrency is the most rollouts in flight: 64.
	Concurrency int
	// Attempts is the most attempts of a rollout whose failures are safe to retry: 2. A start that an
	// agent refused does not count; after Attempts times Deadline the rollout fails. Nor does one that
	// reached no agent; see Patience.
	Attempts int
	// Deadline is how long an attempt may take: 15 minutes.
	Deadline time.Duration
	// Streams is how many streams are opened on each connection: 1. Use more if a connection is
	// balanced over several agents, since each stream stays at one of them.
	Streams int
	// CallPerRollout runs each attempt by a call of RunRollout instead of over streams, so that gRPC
	// balances each rollout separately. It costs more, and if a connection breaks, the attempts on it
	// fail.
	CallPerRollout bool
	// Rollout has the agents' options for the rollouts.
	Rollout *agentv1.RolloutOptions
	// Patience is how long a lost agent is called again before its attempts fail: 30 s. If then no
	// agent is within reach, their rollouts fail, too.
	Patience time.Duration
	// Silence is how long a connection with attempts in flight may be silent before it counts as dead:
	// 45 s.
	Silence time.Duration
	// RetryWait is the wait before the second attempt; it doubles with each attempt: 500 ms.
	RetryWait time.Duration
}

const longestRetryWait = time.Minute

// What a message has besides its request.
const headroom = 64

func (o Options) withDefaults() Options {
	o.Concurrency = above(o.Concurrency, 64)
	o.Attempts = above(o.Attempts, 2)
	o.Deadline = above(o.Deadline, 15*time.Minute)
	o.Streams = min(above(o.Streams, 1), o.Concurrency)
	o.Patience = above(o.Patience, 30*time.Second)
	o.Silence = above(o.Silence, 45*time.Second)
	o.RetryWait = above(o.RetryWait, 500*time.Millisecond)
	return o
}

// above gives the value where it is above zero, else the default.
func above[N int | time.Duration](value, standard N) N {
	if value > 0 {
		return value
	}
	return standard
}

// Job is a rollout to collect.
type Job struct {
	// Task is not changed; its seed is that of repeat 0.
	Task *rolloutv1.Task
	// RolloutID is unique among the agents' rollouts.
	RolloutID   string
	RepeatIndex uint32
}

// work is a job on its way to an outcome.
type work struct {
	job      Job
	attempts uint32 // numbers given so far
	counted  int    // attempts that count
	failures int    // of any kind, for the wait
	giveUp   time.Time
}

// Run collects jobs and yields an outcome for each, in the order in which they end. An outcome counts
// as stored once the next one is asked for: only then may its agent forget it. Leaving the loop
// cancels the rollouts in flight. The only possible error is the context's; it is yielded last.
func Run(
	ctx context.Context, agents []grpc.ClientConnInterface, jobs iter.Seq[Job], options Options,
) iter.Seq2[*Outcome, error] {
	return func(yield func(*Outcome, error) bool) {
		if len(agents) == 0 {
			yield(nil, errors.New("no agent to collect from"))
			return
		}
		c := newCollector(ctx, agents, options.withDefaults())
		defer c.close()
		next, stop := iter.Pull(jobs)
		defer stop()
		c.run(ctx, next, yield)
	}
}

type collector struct {
	options Options
	results chan result
	streams []*stream
	running sync.WaitGroup
	cancel  context.CancelFunc

	exhausted bool // there are no more jobs
	inFlight  int
	// The ids of rollouts that have begun and have no outcome yet.
	active map[string]bool
	// Work that waits for its next attempt, in the order of when that is due.
	waiting []*waiting
}

type waiting struct {
	work *work
	at   time.Time
}

func newCollector(
	ctx context.Context, agents []grpc.ClientConnInterface, options Options,
) *collector {
	// Streams outlive the context for as long as it takes to cancel what is in flight.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &collector{
		options: options, results: make(chan result, options.Concurrency), cancel: cancel,
		active: make(map[string]bool),
	}
	streams := options.Streams
	if options.CallPerRollout {
		streams = 1
	}
	for range streams {
		for _, agent := range agents {
			client := agentv1.NewAgentServiceClient(agent)
			c.streams = append(c.streams, newStream(ctx, client, &c.options, c.results))
		}
	}
	if options.CallPerRollout {
		return c
	}
	for i, one := range c.streams {
		c.running.Go(func() {
			if i >= len(agents) {
				sleep(ctx, spreadTime)
			}
			one.run()
		})
	}
	return c
}

// How long closing may take, and how long the first rollouts wait until all streams are ready. The
// further streams of a connection wait until it knows all its agents, or all would be at the first.
const (
	spreadTime  = 200 * time.Millisecond
	closingTime = 2 * time.Second
	readyTime   = 3 * time.Second
)

func (c *collector) close() {
	for _, one := range c.streams {
		one.close()
	}
	timer := time.AfterFunc(closingTime, c.cancel)
	c.running.Wait()
	timer.Stop()
	c.cancel()
}

func (c *collector) run(
	ctx context.Context, next func() (Job, bool), yield func(*Outcome, error) bool,
) {
	c.awaitStreams(ctx)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		c.fill(next)
		if c.exhausted && c.inFlight == 0 && len(c.waiting) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			yield(nil, ctx.Err())
			return
		case ended := <-c.results:
			c.inFlight--
			outcome := c.outcomeOf(&ended)
			if outcome != nil && !yield(outcome, nil) {
				return
			}
			ended.stream.stored(ended.attempt.key)
		case now := <-ticker.C:
			for _, one := range c.streams {
				one.tick(now)
			}
		case <-c.due():
		}
	}
}

// awaitStreams waits a moment, so that the first rollouts are not given to an agent that is away.
func (c *collector) awaitStreams(ctx context.Context) {
	end := time.Now().Add(readyTime)
	for time.Now().Before(end) && ctx.Err() == nil {
		if !slices.ContainsFunc(c.streams, func(one *stream) bool { _, ready := one.places(); return !ready }) {
			return
		}
		sleep(ctx, 5*time.Millisecond)
	}
}

// due fires when work that waits may go on; nil, which never does, where none can.
func (c *collector) due() <-chan time.Time {
	if len(c.waiting) == 0 || c.inFlight >= c.options.Concurrency {
		return nil
	}
	return time.After(max(time.Until(c.waiting[0].at), 10*time.Millisecond))
}

// fill starts attempts while there is room: retries that are due, then new jobs.
func (c *collector) fill(next func() (Job, bool)) {
	for c.inFlight < c.options.Concurrency {
		stream := c.pick()
		if stream == nil {
			return
		}
		if len(c.waiting) > 0 && !c.waiting[0].at.After(time.Now()) {
			again := c.waiting[0].work
			c.waiting = c.waiting[1:]
			c.start(stream, again)
			continue
		}
		if c.exhausted {
			return
		}
		job, more := next()
		if !more {
			c.exhausted = true
			return
		}
		c.begin(stream, job)
	}
}

// begin starts a job's first attempt.
func (c *collector) begin(stream *stream, job Job) {
	life := time.Duration(c.options.Attempts) * c.options.Deadline
	begun := &work{job: job, giveUp: time.Now().Add(life)}
	if c.active[job.RolloutID] {
		c.refuse(stream, begun, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_ROLLOUT_EXISTS,
			"the rollout is in flight already", "rollout_id", job.RolloutID))
		return
	}
	c.active[job.RolloutID] = true
	c.start(stream, begun)
}

// refuse ends work that is not to be sent.
func (c *collector) refuse(stream *stream, work *work, err *mesherr.Error) {
	c.inFlight++
	identity := rollouts.Identity{
		RolloutID: work.job.RolloutID, RunID: c.options.RunID,
		TaskID: work.job.Task.GetTaskId(), RepeatIndex: work.job.RepeatIndex,
	}
	one := &attempt{key: key{work.job.RolloutID, 0}, work: work, fold: rollouts.NewFold(identity)}
	c.results <- result{attempt: one, stream: stream, err: err, refused: true}
}

// pick returns the least busy stream with a place, one that is ready if there is any; nil for none.
func (c *collector) pick() *stream {
	var best *stream
	bestReady, bestBusy := false, 0
	for _, one := range c.streams {
		free, ready := one.places()
		if busy := one.busy(); free > 0 &&
			(best == nil || (ready && !bestReady) || (ready == bestReady && busy < bestBusy)) {
			best, bestReady, bestBusy = one, ready, busy
		}
	}
	return best
}

func (c *collector) start(stream *stream, work *work) {
	work.attempts++
	job := work.job
	task := job.Task
	if task.Seed != nil {
		task = proto.CloneOf(task)
		task.Seed = proto.Int64(rows.RepeatSeed(task.GetSeed(), job.RepeatIndex))
	}
	request := &agentv1.RunRolloutRequest{
		Task: task, RolloutId: job.RolloutID, Attempt: work.attempts,
		Options: c.options.Rollout, RunId: c.options.RunID,
	}
	size := proto.Size(request)
	if size > mesh.MaxMessageBytes-headroom {
		c.refuse(stream, work, mesherr.New(errorsv1.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE,
			"the task is larger than a message may be", "limit_bytes", strconv.Itoa(mesh.MaxMessageBytes)))
		return
	}
	c.inFlight++
	stream.start(&attempt{
		key:     key{job.RolloutID, work.attempts},
		work:    work,
		request: request,
		size:    size,
		due:     time.Now().Add(c.options.Deadline),
		fold: rollouts.NewFold(rollouts.Identity{
			RolloutID: job.RolloutID, Attempt: work.attempts, RunID: c.options.RunID,
			TaskID: job.Task.GetTaskId(), RepeatIndex: job.RepeatIndex,
		}),
	})
}

// outcomeOf gives the outcome that an attempt makes; nil when another attempt follows.
func (c *collector) outcomeOf(ended *result) *Outcome {
	failure := ended.failure()
	if failure != nil && c.retry(ended, mesherr.FromFailure(failure)) {
		return nil
	}
	if ended.attempt.key.attempt > 0 { // else another rollout has the id
		delete(c.active, ended.attempt.key.rolloutID)
	}
	rollout := ended.rollout
	if rollout == nil {
		rollout = ended.attempt.fold.Partial()
	}
	outcome := &Outcome{
		Job: ended.attempt.work.job, Rollout: rollout, Failure: failure,
		AgentInstanceID: rollout.GetStarted().GetAgentInstanceId(),
	}
	if outcome.AgentInstanceID == "" && !ended.refused {
		outcome.AgentInstanceID = ended.instance
	}
	return outcome
}

// isRefusal says whether an agent that gives this reason has not taken the attempt.
func isRefusal(reason errorsv1.ErrorReason) bool {
	return reason == errorsv1.ErrorReason_ERROR_REASON_QUEUE_FULL ||
		reason == errorsv1.ErrorReason_ERROR_REASON_DRAINING
}

// isAlone says whether an attempt reached no agent, and none is within reach for another one.
func (c *collector) isAlone(err *mesherr.Error) bool {
	return err.Reason == errorsv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE &&
		!slices.ContainsFunc(c.streams, func(one *stream) bool { return !one.isOutOfReach() })
}

// retry has another attempt follow, where that is safe and there is one left.
func (c *collector) retry(ended *result, err *mesherr.Error) bool {
	work := ended.attempt.work
	work.failures++
	if !ended.refused {
		work.counted++
	} else if isRefusal(err.Reason) {
		work.attempts-- // it was not taken: it is said again by the same number
	}
	wait := c.options.RetryWait << min(work.failures-1, 16)
	wait = min(max(wait/2+rand.N(wait/2+1), err.RetryAfter), longestRetryWait)
	at := time.Now().Add(wait)
	if !err.RetrySafe || work.counted >= c.options.Attempts || at.After(work.giveUp) ||
		(ended.refused && c.isAlone(err)) {
		return false
	}
	c.waiting = append(c.waiting, &waiting{work, at})
	slices.SortFunc(c.waiting, func(a, b *waiting) int { return a.at.Compare(b.at) })
	return true
}
