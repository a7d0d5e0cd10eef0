package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper starts processes and collects every child that ends, its own and orphans that the kernel handed to PID 1.
// os/exec cannot be used beside it: two callers of wait(2) would steal each other's children.
type Reaper struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	signals chan os.Signal
}

// NewReaper starts collecting at once and never stops: a process has one reaper for its whole life.
func NewReaper() *Reaper {
	r := &Reaper{waiting: map[int]chan syscall.WaitStatus{}, signals: make(chan os.Signal, 1)}
	signal.Notify(r.signals, syscall.SIGCHLD)
	go func() {
		r.collect() // What ended before anyone listened, in an earlier life of this process.
		for range r.signals {
			r.collect()
		}
	}()
	return r
}

func (r *Reaper) collect() {
	// The lock keeps a child that ends at once from being collected before Start has written it down.
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if done, ours := r.waiting[pid]; ours {
			delete(r.waiting, pid)
			done <- status
		}
	}
}

// Command is what to execute.
type Command struct {
	Args []string // Args[0] is the program's path
	Env  []string // nil: this process's own
}

// Start executes the command with output going to out; the channel gets its status once.
func (r *Reaper) Start(command Command, out *os.File) (int, <-chan syscall.WaitStatus, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	env := command.Env
	if env == nil {
		env = os.Environ()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(command.Args[0], command.Args, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		// Its own group: a Ctrl-C at an attached terminal is PID 1's to order.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", command.Args[0], err)
	}
	done := make(chan syscall.WaitStatus, 1)
	r.waiting[pid] = done
	return pid, done, nil
}

// Output runs a short command to its end and returns what it printed; the error carries that text too.
func (r *Reaper) Output(ctx context.Context, args ...string) (string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer reader.Close()
	pid, done, err := r.Start(Command{Args: args}, writer)
	writer.Close()
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer stop()
	data, _ := io.ReadAll(io.LimitReader(reader, 1<<20))
	text := strings.TrimSpace(string(data))
	if status := <-done; status != 0 {
		if ctx.Err() != nil {
			return text, fmt.Errorf("%s: %w", args[0], ctx.Err())
		}
		return text, fmt.Errorf("%s: %s: %s", strings.Join(args, " "), Describe(status), text)
	}
	return text, nil
}

// Describe tells how a process ended.
func Describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}
