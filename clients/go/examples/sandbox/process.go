package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"
)

const (
	pieceBytes = 1 << 20
	// How long output may come after its process has ended, where a descendant holds it open.
	lateOutput = 300 * time.Millisecond
)

// process is a program of a sandbox.
type process struct {
	id      string
	begun   time.Time
	control *net.UnixConn
	orders  *json.Encoder
	sending sync.Mutex // of orders

	stdin     *os.File
	writing   chan struct{} // holds a token while nobody writes
	written   uint64        // these two belong to who has the token
	stdinDone bool

	mu      sync.Mutex
	streams [2]stream
	cause   sandboxv1.ExitCause // why it is killed, where the service does so
	exit    *sandboxv1.ProcessExit
	changed chan struct{} // closed at the next change
}

// stream is one of the two that a process writes to.
type stream struct {
	kept  []byte
	limit uint64
	bytes uint64
}

// startProcess starts a program; one that cannot be run ends at once.
func (b *box) startProcess(id string, asked *order, limits [2]uint64, endAtLimit bool) (*process, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	// The helper alone is to hold its ends, so that its end is seen.
	given := []*os.File{theirs}
	closeGiven := sync.OnceFunc(func() {
		for _, one := range given {
			one.Close()
		}
	})
	defer closeGiven()
	inputs, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	given = append(given, inputs)
	made := &process{
		id: id, begun: time.Now(), control: ours, orders: json.NewEncoder(ours), stdin: input,
		writing: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	made.writing <- struct{}{}
	var reads [2]*os.File
	for i := range reads {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		reads[i], made.streams[i].limit = read, limits[i]
		given = append(given, write)
	}
	if err := b.hand(given[1], given[2], given[3], theirs); err != nil {
		return nil, err
	}
	closeGiven()
	if err := made.orders.Encode(asked); err != nil {
		return nil, err
	}
	var readers sync.WaitGroup
	for i := range reads {
		readers.Go(func() { made.read(i, reads[i], endAtLimit) })
	}
	reports := json.NewDecoder(ours)
	reports.Decode(&report{}) // that it was started; its end comes where it was killed at once
	go made.follow(b, reports, reads, &readers)
	return made, nil
}

// follow waits for the end of the process, and for what it wrote.
func (p *process) follow(b *box, reports *json.Decoder, reads [2]*os.File, readers *sync.WaitGroup) {
	end := report{Signal: int(syscall.SIGKILL)} // where the helper was killed with it
	reports.Decode(&end)
	took := time.Since(p.begun)
	for _, one := range reads {
		one.SetReadDeadline(time.Now().Add(lateOutput))
	}
	readers.Wait()
	for _, one := range reads {
		one.SetReadDeadline(time.Time{})
		go func() { // what still holds it is not made to wait
			io.Copy(io.Discard, one)
			one.Close()
		}()
	}
	p.stdin.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := &p.streams[0], &p.streams[1]
	p.exit = &sandboxv1.ProcessExit{
		Cause:       sandboxv1.ExitCause_EXIT_CAUSE_EXITED,
		StdoutBytes: out.bytes, StdoutDropped: out.bytes - uint64(len(out.kept)),
		StderrBytes: err.bytes, StderrDropped: err.bytes - uint64(len(err.kept)),
		DurationUs: uint64(took.Microseconds()), Signal: uint32(end.Signal),
	}
	switch {
	case end.Signal == 0:
		p.exit.ExitCode = new(int32(end.Code))
	case p.cause != 0:
		p.exit.Cause = p.cause
	case b.isGone():
		p.exit.Cause = sandboxv1.ExitCause_EXIT_CAUSE_SANDBOX_ENDED
	default:
		p.exit.Cause = sandboxv1.ExitCause_EXIT_CAUSE_SIGNALED
	}
	p.announce()
}

// announce wakes who listens; p.mu is held.
func (p *process) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *process) read(which int, from *os.File, endAtLimit bool) {
	data := make([]byte, 1<<16)
	for {
		n, err := from.Read(data)
		p.mu.Lock()
		into := &p.streams[which]
		into.bytes += uint64(n)
		room := min(uint64(n), into.limit-uint64(len(into.kept)))
		into.kept = append(into.kept, data[:room]...)
		over := endAtLimit && into.bytes > into.limit
		if room > 0 {
			p.announce()
		}
		p.mu.Unlock()
		if over {
			endAtLimit = false
			go p.kill(sandboxv1.ExitCause_EXIT_CAUSE_OUTPUT_LIMIT)
		}
		if err != nil {
			return
		}
	}
}

// kill ends the process and its descendants for a reason of the service.
func (p *process) kill(cause sandboxv1.ExitCause) {
	p.mu.Lock()
	if p.exit == nil && p.cause == 0 {
		p.cause = cause
	}
	p.mu.Unlock()
	p.signal(int(syscall.SIGKILL), true)
}

// signal sends a signal; nothing happens when the process has ended.
func (p *process) signal(number int, descendants bool) {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.control.SetWriteDeadline(time.Now().Add(startTime))
	p.orders.Encode(signalling{number, descendants})
}

// write writes to standard input at an offset; it gives the bytes written so far.
func (p *process) write(ctx context.Context, offset uint64, data []byte, close bool) (uint64, error) {
	select {
	case <-p.writing:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { p.writing <- struct{}{} }()
	if offset > p.written {
		return p.written, invalid("offset", "is beyond the bytes written so far")
	}
	data = data[min(p.written-offset, uint64(len(data))):]
	if !p.stdinDone && len(data) > 0 {
		stop := context.AfterFunc(ctx, func() { p.stdin.SetWriteDeadline(time.Now()) })
		n, err := p.stdin.Write(data)
		if !stop() {
			p.stdin.SetWriteDeadline(time.Time{})
		}
		p.written += uint64(n)
		data = data[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return p.written, ctx.Err()
		}
	}
	p.written += uint64(len(data)) // what it no longer reads is dropped
	if close {
		p.stdinDone = true
		p.stdin.Close()
	}
	return p.written, nil
}

// listen sends what the process has written behind the offsets and writes, up to its end.
func (p *process) listen(
	ctx context.Context, offsets [2]uint64, send func(*sandboxv1.ProcessEvent) error,
) error {
	err := send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Started{
		Started: &sandboxv1.ProcessStarted{ProcessId: p.id},
	}})
	for err == nil {
		pieces, exit, changed := p.next(&offsets)
		switch {
		case pieces[0] != nil:
			err = send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Stdout{Stdout: pieces[0]}})
		case pieces[1] != nil:
			err = send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Stderr{Stderr: pieces[1]}})
		case exit != nil:
			return send(&sandboxv1.ProcessEvent{Event: &sandboxv1.ProcessEvent_Exit{Exit: exit}})
		default:
			select {
			case <-changed:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	}
	return err
}

// next takes the next piece of one of the streams, standard output first.
func (p *process) next(offsets *[2]uint64) (pieces [2][]byte, exit *sandboxv1.ProcessExit, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range pieces {
		kept := p.streams[i].kept
		if offsets[i] < uint64(len(kept)) {
			rest := kept[offsets[i]:]
			pieces[i] = slices.Clone(rest[:min(len(rest), pieceBytes)])
			offsets[i] += uint64(len(pieces[i]))
			return pieces, nil, nil
		}
	}
	return pieces, p.exit, p.changed
}

func (p *process) ended() *sandboxv1.ProcessExit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}
