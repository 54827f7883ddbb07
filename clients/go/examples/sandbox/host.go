package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	boxUser    = "user"
	boxHome    = "/home/user"
	insidePath = "/run/sandbox" // this program in the sandbox
	insideWord = "inside-a-sandbox"
	startTime  = 30 * time.Second
)

// Files of every sandbox's /etc.
var etc = map[string]string{
	"passwd":        "user:x:1000:1000::/home/user:/bin/sh\n",
	"group":         "user:x:1000:\n",
	"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// host has the folder of all sandboxes.
type host struct {
	folder    string
	temporary bool
	lock      *os.File
}

// newHost takes a folder and empties it: what is in it was left by an earlier life.
func newHost(folder string) (*host, error) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return nil, errors.New("bwrap is not installed: install the package bubblewrap")
	}
	temporary := folder == ""
	var err error
	if temporary {
		folder, err = os.MkdirTemp("", "gymmesh-boxes-")
	} else {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(folder+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return nil, fmt.Errorf("another service has the folder %s: %w", folder, err)
	}
	left, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, one := range left {
		if err := os.RemoveAll(filepath.Join(folder, one.Name())); err != nil {
			return nil, err
		}
	}
	return &host{folder, temporary, lock}, nil
}

func (h *host) close() {
	if h.temporary {
		os.RemoveAll(h.folder)
		os.Remove(h.folder + ".lock")
	}
	h.lock.Close()
}

// box is a bubblewrap that runs, with the starter of processes in it.
type box struct {
	folder string
	pid    int           // of the first process of its namespace, as the host sees it
	lost   chan struct{} // closed when nothing runs in it
	over   atomic.Bool   // it is being ended
	ending sync.Once

	mu      sync.Mutex // of the connection
	starter *net.UnixConn
}

// start makes a sandbox's file system and its namespaces.
func (h *host) start(id string) (*box, error) {
	made := &box{folder: filepath.Join(h.folder, id), lost: make(chan struct{})}
	if err := made.layOut(); err != nil {
		os.RemoveAll(made.folder)
		return nil, err
	}
	if err := made.launch(); err != nil {
		os.RemoveAll(made.folder)
		return nil, err
	}
	return made, nil
}

func (b *box) layOut() error {
	for _, one := range []string{"etc", "home/user", "var/tmp", "usr", "proc", "dev", "run"} {
		if err := os.MkdirAll(filepath.Join(b.folder, one), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(b.folder, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	for name, text := range etc {
		if err := os.WriteFile(filepath.Join(b.folder, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (b *box) launch() error {
	itself, err := os.Executable()
	if err != nil {
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	said, says, err := os.Pipe()
	if err != nil {
		ours.Close()
		return err
	}
	defer said.Close()
	arguments := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", "1000",
		"--gid", "1000", "--hostname", "sandbox", "--clearenv", "--bind", b.folder, "/",
		"--ro-bind", "/usr", "/usr",
	}
	for _, one := range []string{"bin", "sbin", "lib", "lib64"} {
		if to, err := os.Readlink("/" + one); err == nil {
			arguments = append(arguments, "--symlink", to, "/"+one)
		}
	}
	for _, one := range []string{"/etc/alternatives", "/etc/ld.so.cache"} {
		arguments = append(arguments, "--ro-bind-try", one, one)
	}
	arguments = append(arguments, "--proc", "/proc", "--dev", "/dev")
	// Started by root, the sandbox's user is root outside of it, whose these are.
	for _, one := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs"} {
		arguments = append(arguments, "--ro-bind-try", "/proc/"+one, "/proc/"+one)
	}
	arguments = append(arguments, "--ro-bind", itself, insidePath,
		"--chdir", boxHome, "--info-fd", "4", "--", insidePath, insideWord, "starter")
	command := exec.Command("bwrap", arguments...)
	command.ExtraFiles = []*os.File{theirs, says} // 3 and 4
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var errors strings.Builder
	command.Stderr = &errors
	err = startLocked(command)
	says.Close()
	if err != nil {
		ours.Close()
		return err
	}
	go func() {
		command.Wait()
		ours.Close()
		close(b.lost)
	}()
	b.starter = ours
	var info struct {
		Pid int `json:"child-pid"`
	}
	said.SetReadDeadline(time.Now().Add(startTime))
	err = json.NewDecoder(said).Decode(&info)
	b.pid = info.Pid
	if err == nil {
		ours.SetReadDeadline(time.Now().Add(startTime))
		_, err = ours.Read(make([]byte, 1)) // the starter is there
	}
	if err != nil {
		command.Process.Kill()
		<-b.lost
		return fmt.Errorf("bwrap did not start: %w: %s", err, errors.String())
	}
	return nil
}

// The thread that starts a bubblewrap must live as long as it, since it dies with its parent: threads
// that are done with may go, so that one is kept for this.
var starts = make(chan func())

func init() {
	go func() {
		runtime.LockOSThread()
		for one := range starts {
			one()
		}
	}()
}

func startLocked(command *exec.Cmd) error {
	result := make(chan error)
	starts <- func() { result <- command.Start() }
	return <-result
}

// hand gives four files to a new helper in the sandbox: its standard streams, and the pipe of its orders.
func (b *box) hand(files ...*os.File) error {
	numbers := make([]int, 0, len(files))
	for _, one := range files {
		numbers = append(numbers, int(one.Fd()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starter.SetWriteDeadline(time.Now().Add(startTime))
	_, _, err := b.starter.WriteMsgUnix([]byte{1}, syscall.UnixRights(numbers...), nil)
	return err
}

// end kills all that is in the sandbox, and removes its files; it returns when nothing is left.
func (b *box) end() {
	b.ending.Do(func() {
		b.over.Store(true)
		select {
		case <-b.lost:
		default:
			// The namespace's first process is its parent's to reap, so that the number is still its.
			syscall.Kill(b.pid, syscall.SIGKILL)
			<-b.lost
		}
		removeAll(b.folder)
	})
}

// isGone says whether the sandbox ends or has ended.
func (b *box) isGone() bool {
	select {
	case <-b.lost:
		return true
	default:
		return b.over.Load()
	}
}

// removeAll removes a folder whose programs may have taken away the rights to do so.
func removeAll(folder string) {
	if os.RemoveAll(folder) == nil {
		return
	}
	filepath.WalkDir(folder, func(name string, entry os.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			os.Chmod(name, 0o700)
		}
		return nil
	})
	os.RemoveAll(folder)
}

func socketPair() (*net.UnixConn, *os.File, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(pair[0]), "socket")
	defer file.Close()
	ours, err := net.FileConn(file)
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours.(*net.UnixConn), theirs, nil
}
