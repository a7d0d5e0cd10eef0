package supervisor

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// runner walks one unit through its life.
type runner struct {
	Unit
	owner *Supervisor
	log   *LogFile
	death deaths

	ctx    context.Context // ends when the unit is to stop
	cancel context.CancelFunc
	gone   chan struct{} // closed when live has returned

	mu        sync.Mutex
	ready     chan struct{} // closed at the first readiness
	wasReady  bool
	pid       int
	excused   bool // the next death was asked for
	lastState State
}

func newRunner(owner *Supervisor, unit Unit) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &runner{Unit: unit, owner: owner, ctx: ctx, cancel: cancel, gone: make(chan struct{}), ready: make(chan struct{})}
}

func (r *runner) live() {
	defer close(r.gone)
	r.death = deaths{limits: r.owner.Limits, maximum: r.MaxFailedStarts}
	r.become(Waiting, "")
	if !r.awaitNeeds() {
		return
	}
	if r.Do != nil {
		r.task()
		return
	}
	log, err := r.owner.openLog(r.Name)
	if err != nil {
		r.owner.giveUp(err)
		return
	}
	r.log = log
	defer r.become(Stopped, "")
	for r.ctx.Err() == nil {
		if !r.once() {
			return
		}
	}
}

func (r *runner) awaitNeeds() bool {
	for _, need := range r.Needs {
		select {
		case <-r.owner.units[need].ready:
		case <-r.ctx.Done():
			return false
		}
	}
	return true
}

// task runs Do until it succeeds, then keeps the ready state until the stop.
func (r *runner) task() {
	r.become(Starting, "")
	for step := 0; ; step++ {
		err := r.Do(r.ctx)
		if err == nil {
			break
		}
		if r.ctx.Err() != nil {
			return
		}
		r.become(Starting, err.Error())
		if !sleep(r.ctx, backoff(r.owner.Limits.ProbeMin, r.owner.Limits.RestartMax, step)) {
			return
		}
	}
	r.become(Ready, "")
	<-r.ctx.Done()
}

// once is one process from start to end; false ends the unit.
func (r *runner) once() bool {
	status, wasReady, err := r.process()
	if r.ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	excused := r.excused
	r.excused = false
	r.mu.Unlock()
	if excused {
		return true
	}
	why := Describe(status)
	if err != nil {
		why = err.Error()
	}
	r.become(Died, why)
	pause, giveUp := r.death.add(time.Now(), wasReady)
	if giveUp {
		r.owner.giveUp(fmt.Errorf("%s keeps dying (%s); its last lines:\n%s", r.Name, why, r.log.Tail()))
		return false
	}
	return sleep(r.ctx, pause)
}

func (r *runner) process() (status syscall.WaitStatus, wasReady bool, err error) {
	r.become(Starting, "")
	command, err := r.Start()
	if err != nil {
		return 0, false, err
	}
	out, drained, err := r.log.Pipe()
	if err != nil {
		return 0, false, err
	}
	pid, done, err := r.owner.Reaper.Start(command, out)
	out.Close()
	if err != nil {
		return 0, false, err
	}
	r.setPid(pid)
	probing, stopProbing := context.WithCancel(r.ctx)
	probed := make(chan bool, 1)
	go func() { probed <- r.probe(probing) }()
	defer func() {
		r.setPid(0)
		stopProbing()
		wasReady = <-probed
	}()
	select {
	case status = <-done:
		// Its last words are what a message about its death shows; a child of its own may hold the pipe open, though.
		select {
		case <-drained:
		case <-time.After(100 * time.Millisecond):
		}
		return status, false, nil
	case <-r.ctx.Done():
		return r.terminate(pid, done), false, nil
	}
}

// probe reports ready and unready until the process ends; it returns whether it was ever ready.
func (r *runner) probe(ctx context.Context) bool {
	for step := 0; ; step++ {
		err := r.Ready(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			break
		}
		if !sleep(ctx, backoff(r.owner.Limits.ProbeMin, r.owner.Limits.ProbeMax, step)) {
			return false
		}
	}
	r.become(Ready, "")
	for failures := 0; sleep(ctx, r.owner.Limits.Recheck); {
		err := r.Ready(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			failures = 0
			r.become(Ready, "")
		default:
			// One slow answer on a busy machine is not news.
			if failures++; failures >= 2 {
				r.become(Unready, err.Error())
			}
		}
	}
	return true
}

func (r *runner) terminate(pid int, done <-chan syscall.WaitStatus) syscall.WaitStatus {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	timer := time.NewTimer(r.Grace)
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
	<-r.gone
}

func (r *runner) restart() {
	r.mu.Lock()
	pid := r.pid
	r.excused = pid != 0
	r.mu.Unlock()
	if pid == 0 {
		return // Not running: the next start reads everything anew anyway.
	}
	r.become(Unready, "restarting")
	_ = syscall.Kill(pid, syscall.SIGTERM)
	time.AfterFunc(r.Grace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// The same number still being ours means that it did not listen.
		if r.pid == pid && r.excused {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

func (r *runner) setPid(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pid = pid
}

func (r *runner) become(state State, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state == r.lastState && detail == "" {
		return
	}
	r.lastState = state
	// Told before anyone who waits for it moves on, so that observers see causes before effects.
	if r.owner.Observe != nil {
		r.owner.Observe(Change{Unit: r.Name, State: state, Detail: detail})
	}
	// Needs are gates for a first start only: a unit that is up rides out the restart of another.
	if state == Ready && !r.wasReady {
		r.wasReady = true
		close(r.ready)
	}
}
