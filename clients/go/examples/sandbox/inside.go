package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// What runs in the sandbox: a starter, and a helper for each process and each call about files.

// order is what a helper is to do: to run a program, or to do a call about files.
type order struct {
	Words   [][]byte `json:",omitempty"` // of a program
	Env     []string
	Cwd     string
	Call    string `json:",omitempty"` // the method of a call
	Folder  string // that a call is limited to
	Workdir string
	MaxSize int64 // of what an archive unpacks to
}

// report is what a helper says of its program.
type report struct {
	Started bool
	Code    int
	Signal  int
}

// signalling asks for a signal to a program.
type signalling struct {
	Number      int
	Descendants bool
}

func inside(words []string) {
	if len(words) == 1 && words[0] == "starter" {
		starter()
	} else {
		helper()
	}
}

// starter starts a helper for each set of files that comes.
func starter() {
	file := os.NewFile(3, "host")
	connection, err := net.FileConn(file)
	if err != nil {
		os.Exit(1)
	}
	file.Close()
	host := connection.(*net.UnixConn)
	host.Write([]byte{1})
	for {
		data, control := make([]byte, 1), make([]byte, 256)
		n, controls, _, _, err := host.ReadMsgUnix(data, control)
		if err != nil || n == 0 {
			os.Exit(0) // the sandbox ends with it
		}
		messages, err := syscall.ParseSocketControlMessage(control[:controls])
		if err != nil || len(messages) != 1 {
			continue
		}
		numbers, err := syscall.ParseUnixRights(&messages[0])
		if err != nil || len(numbers) != 4 {
			continue
		}
		var files []*os.File
		for _, number := range numbers {
			syscall.CloseOnExec(number)
			files = append(files, os.NewFile(uintptr(number), "given"))
		}
		command := exec.Command("/proc/self/exe", insideWord, "helper")
		command.Stdin, command.Stdout, command.Stderr = files[0], files[1], files[2]
		command.ExtraFiles = files[3:]
		if command.Start() == nil {
			go command.Wait()
		}
		for _, one := range files {
			one.Close()
		}
	}
}

// helper does one order of the host.
func helper() {
	const setSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	syscall.RawSyscall(syscall.SYS_PRCTL, setSubreaper, 1, 0)
	syscall.CloseOnExec(3)
	host := os.NewFile(3, "host")
	orders := json.NewDecoder(bufio.NewReader(host))
	var asked order
	if orders.Decode(&asked) != nil {
		os.Exit(1)
	}
	if asked.Call != "" {
		go func() {
			orders.Decode(&signalling{}) // the host closes it when nobody waits for the call
			os.Exit(1)
		}()
		answer(&asked)
		os.Exit(0)
	}
	runProgram(&asked, orders, json.NewEncoder(host))
}

func runProgram(asked *order, orders *json.Decoder, host *json.Encoder) {
	command, code, err := commandOf(asked)
	if err == nil {
		if err = command.Start(); err != nil {
			code = 126
			if errors.Is(err, fs.ErrNotExist) {
				code = 127
			}
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", asked.Words[0], err)
		host.Encode(report{Started: true})
		host.Encode(report{Code: code})
		return
	}
	for _, one := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		one.Close() // the program alone holds them
	}
	host.Encode(report{Started: true})
	var ended sync.Mutex // locked while the program may be signalled
	gone := false
	go func() {
		for {
			var asked signalling
			if orders.Decode(&asked) != nil {
				return
			}
			if asked.Descendants {
				signalAll(os.Getpid(), asked.Number)
				continue
			}
			ended.Lock()
			if !gone {
				syscall.Kill(command.Process.Pid, syscall.Signal(asked.Number))
			}
			ended.Unlock()
		}
	}()
	wait(command.Process.Pid, host, &ended, &gone)
}

// wait reaps the program and its descendants, which are its own since it is their subreaper.
func wait(program int, host *json.Encoder, ended *sync.Mutex, gone *bool) {
	for {
		var info [128]byte // siginfo_t: wait without reaping, so that the number stays the program's
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, 0, 0, uintptr(unsafe.Pointer(&info)),
			syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 { // no child is left
			return
		}
		ended.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == nil && pid == program {
			*gone = true
			if status.Signaled() {
				host.Encode(report{Signal: int(status.Signal())})
			} else {
				host.Encode(report{Code: status.ExitStatus()})
			}
		}
		ended.Unlock()
	}
}

// commandOf prepares a program; where it cannot be run, it says with which code it ends.
func commandOf(asked *order) (*exec.Cmd, int, error) {
	if info, err := os.Stat(asked.Cwd); err != nil || !info.IsDir() {
		return nil, 126, fmt.Errorf("the folder %s is not there", asked.Cwd)
	}
	if err := os.Chdir(asked.Cwd); err != nil {
		return nil, 126, err
	}
	words := make([]string, 0, len(asked.Words))
	for _, word := range asked.Words {
		words = append(words, string(word))
	}
	program := words[0]
	if !strings.Contains(program, "/") {
		program = ""
		for _, one := range asked.Env {
			if list, found := strings.CutPrefix(one, "PATH="); found {
				program = lookUp(words[0], list)
			}
		}
		if program == "" {
			return nil, 127, errors.New("not found")
		}
	}
	return &exec.Cmd{
		Path: program, Args: words, Env: asked.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}, 0, nil
}

func lookUp(name, list string) string {
	for _, folder := range filepath.SplitList(list) {
		found := filepath.Join(folder, name)
		if info, err := os.Stat(found); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			if !strings.Contains(found, "/") {
				found = "./" + found
			}
			return found
		}
	}
	return ""
}

// signalAll signals all descendants of a process; SIGKILL until none is left, for a bounded time.
func signalAll(above, number int) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		found := descendants(above)
		for _, pid := range found {
			syscall.Kill(pid, syscall.Signal(number))
		}
		if number != int(syscall.SIGKILL) || len(found) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// descendants are the processes below one that have not ended.
func descendants(above int) []int {
	below := make(map[int][]int)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		text := string(data)
		fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		below[parent] = append(below[parent], pid)
	}
	found := below[above]
	for i := 0; i < len(found); i++ {
		found = append(found, below[found[i]]...)
	}
	return found
}
