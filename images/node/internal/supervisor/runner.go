package supervisor

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// runner runs one unit.
type runner struct {
	Unit
	supervisor *Supervisor
	log        *LogFile
	exits      exitHistory

	ctx     context.Context // ends when the unit must stop
	cancel  context.CancelFunc
	stopped chan struct{} // closed when run has returned

	mu               sync.Mutex
	ready            chan struct{} // closed when the unit is ready for the first time
	wasReady         bool
	pid              int
	restartRequested bool // the next exit does not count as a failure
	lastState        State
}

func newRunner(supervisor *Supervisor, unit Unit) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &runner{Unit: unit, supervisor: supervisor, ctx: ctx, cancel: cancel, stopped: make(chan struct{}), ready: make(chan struct{})}
}

func (r *runner) run() {
	defer close(r.stopped)
	r.exits = exitHistory{limits: r.supervisor.Limits, maxFailedStarts: r.MaxFailedStarts}
	r.setState(Waiting, "")
	if !r.waitForNeeds() {
		return
	}
	if r.Task != nil {
		r.runTask()
		return
	}
	log, err := r.supervisor.openLog(r.Name)
	if err != nil {
		r.supervisor.fail(err)
		return
	}
	r.log = log
	defer r.setState(Stopped, "")
	for r.ctx.Err() == nil {
		if !r.runOnce() {
			return
		}
	}
}

func (r *runner) waitForNeeds() bool {
	for _, need := range r.Needs {
		select {
		case <-r.supervisor.units[need].ready:
		case <-r.ctx.Done():
			return false
		}
	}
	return true
}

// runTask retries the task until it succeeds, then waits until the unit must stop.
func (r *runner) runTask() {
	r.setState(Starting, "")
	for attempt := 0; ; attempt++ {
		err := r.Task(r.ctx)
		if err == nil {
			break
		}
		if r.ctx.Err() != nil {
			return
		}
		r.setState(Starting, err.Error())
		if !sleep(r.ctx, backoff(r.supervisor.Limits.ProbeMin, r.supervisor.Limits.RestartMax, attempt)) {
			return
		}
	}
	r.setState(Ready, "")
	<-r.ctx.Done()
}

// runOnce runs the process once and waits for the backoff. It returns false if the process must not start again.
func (r *runner) runOnce() bool {
	status, wasReady, err := r.startAndWait()
	if r.ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	restartRequested := r.restartRequested
	r.restartRequested = false
	r.mu.Unlock()
	if restartRequested {
		return true
	}
	reason := Describe(status)
	if err != nil {
		reason = err.Error()
	}
	r.setState(Died, reason)
	delay, isExceeded := r.exits.add(time.Now(), wasReady)
	if isExceeded {
		r.supervisor.fail(fmt.Errorf("%s: exits repeatedly (%s); last lines of its log:\n%s", r.Name, reason, r.log.Tail()))
		return false
	}
	return sleep(r.ctx, delay)
}

func (r *runner) startAndWait() (status syscall.WaitStatus, wasReady bool, err error) {
	r.setState(Starting, "")
	command, err := r.NewCommand()
	if err != nil {
		return 0, false, err
	}
	out, drained, err := r.log.Pipe()
	if err != nil {
		return 0, false, err
	}
	pid, done, err := r.supervisor.Reaper.Start(command, out)
	out.Close()
	if err != nil {
		return 0, false, err
	}
	r.setPID(pid)
	probeCtx, stopProbing := context.WithCancel(r.ctx)
	probeResult := make(chan bool, 1)
	go func() { probeResult <- r.probeReadiness(probeCtx) }()
	defer func() {
		r.setPID(0)
		stopProbing()
		wasReady = <-probeResult
	}()
	select {
	case status = <-done:
		// The error message contains the last lines of the log, so wait for them. A child process may keep the pipe open.
		select {
		case <-drained:
		case <-time.After(100 * time.Millisecond):
		}
		return status, false, nil
	case <-r.ctx.Done():
		return r.terminate(pid, done), false, nil
	}
}

// probeReadiness sets the states Ready and Unready until the context ends. It reports whether the process was ever ready.
func (r *runner) probeReadiness(ctx context.Context) bool {
	for attempt := 0; ; attempt++ {
		err := r.Ready(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			break
		}
		if !sleep(ctx, backoff(r.supervisor.Limits.ProbeMin, r.supervisor.Limits.ProbeMax, attempt)) {
			return false
		}
	}
	r.setState(Ready, "")
	for failures := 0; sleep(ctx, r.supervisor.Limits.Recheck); {
		err := r.Ready(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			failures = 0
			r.setState(Ready, "")
		default:
			// A single failure may be a slow response of a busy machine.
			if failures++; failures >= 2 {
				r.setState(Unready, err.Error())
			}
		}
	}
	return true
}

func (r *runner) terminate(pid int, done <-chan syscall.WaitStatus) syscall.WaitStatus {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	timer := time.NewTimer(r.GracePeriod)
	defer timer.Stop()
	select {
	case status := <-done:
		return status
	case <-timer.C:
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return <-done
	}
}

func (r *runner) stop() {
	r.cancel()
	<-r.stopped
}

func (r *runner) restart() {
	r.mu.Lock()
	pid := r.pid
	r.restartRequested = pid != 0
	r.mu.Unlock()
	if pid == 0 {
		return // The process does not run; its next start uses the new certificates.
	}
	r.setState(Unready, "restarting")
	_ = syscall.Kill(pid, syscall.SIGTERM)
	time.AfterFunc(r.GracePeriod, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// An unchanged PID means that the process ignored SIGTERM.
		if r.pid == pid && r.restartRequested {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

func (r *runner) setPID(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pid = pid
}

func (r *runner) setState(state State, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state == r.lastState && detail == "" {
		return
	}
	r.lastState = state
	// Notify before r.ready is closed, so that observers see this change before those of dependent units.
	if r.supervisor.Observe != nil {
		r.supervisor.Observe(Change{Unit: r.Name, State: state, Detail: detail})
	}
	// Needs apply to the first start only: a running unit tolerates the restart of a unit that it needs.
	if state == Ready && !r.wasReady {
		r.wasReady = true
		close(r.ready)
	}
}
