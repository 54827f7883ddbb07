package main

import (
	"sync"
	"time"

	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/examples/internal/serving"
)

// sandbox is one that runs.
type sandbox struct {
	id      string
	request *sandboxv1.CreateSandboxRequest
	answer  *sandboxv1.CreateSandboxResponse
	box     *box
	workdir string
	env     []string
	begun   time.Time
	ends    time.Time // zero: never
	own     *lease
	leases  leases
	running serving.Once[*process] // Exec's
	staying serving.Once[*process] // StartProcess's
	letGo   func()
	done    chan struct{} // closed once nothing of it is left

	mu        sync.Mutex
	processes map[string]*process
	started   int // processes so far
	archives  map[string]*archive
	timer     *time.Timer
	ended     bool
	uses      int       // streams that run with another lease than the own one
	used      time.Time // when one was used last; zero: never
}

// expire ends the sandbox where its own lease was not renewed.
func (b *sandbox) expire() {
	if left := time.Until(b.ownUntil()); left > 0 {
		b.mu.Lock()
		b.timer.Reset(left)
		b.mu.Unlock()
		return
	}
	b.end()
}

func (b *sandbox) ownUntil() time.Time {
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	return b.own.expires
}

// end ends the sandbox and returns once nothing of it is left.
func (b *sandbox) end() {
	b.mu.Lock()
	first := !b.ended
	b.ended = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	if !first {
		<-b.done
		return
	}
	if b.box != nil {
		b.box.end()
	}
	b.letGo()
	close(b.done)
}

// use notes that a call with a lease begins; what it returns, that it ended.
func (b *sandbox) use(shown *lease) func() {
	if shown.own {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.uses--
		b.used = time.Now()
	}
}

func isBoxUser(name string) bool { return name == "" || name == boxUser || name == "1000" }

func assignments(values map[string]string) []string {
	made := make([]string, 0, len(values))
	for name, value := range values {
		made = append(made, name+"="+value)
	}
	return made
}
