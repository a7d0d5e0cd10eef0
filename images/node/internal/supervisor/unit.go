package supervisor

import (
	"context"
	"time"
)

// State is the state of a unit.
type State string

// States of a unit. `holdfast-node wait` prints them.
const (
	Waiting  State = "waiting" // for its needs
	Starting State = "starting"
	Ready    State = "ready"
	Unready  State = "unready" // runs and was ready, but fails its readiness check
	Died     State = "died"    // the process exited; the supervisor restarts it
	Stopped  State = "stopped"
)

// Unit is a process that the supervisor keeps running, or a task that it runs until it succeeds.
type Unit struct {
	Name  string
	Needs []string // units that must be ready first

	// NewCommand returns the command of a process. Each start calls it, so that a restart uses changed addresses.
	NewCommand func() (Command, error)
	// Ready returns nil if the process is ready. The supervisor calls it with a short backoff until then, and periodically
	// afterwards.
	Ready func(context.Context) error
	// Task makes the unit a task. The unit is ready after Task returns nil; the supervisor retries it until then.
	Task func(context.Context) error

	GracePeriod     time.Duration // between SIGTERM and SIGKILL; default 1.5 s
	MaxFailedStarts int           // consecutive exits without readiness; default: no limit other than MaxExits
}

// Limits contains delays and the restart limit. Tests set shorter ones.
type Limits struct {
	ProbeMin, ProbeMax     time.Duration // backoff of readiness checks until ready
	Recheck                time.Duration // period of readiness checks afterwards
	RestartMin, RestartMax time.Duration // backoff of restarts
	MaxExits               int           // exits within Window before the supervisor fails
	Window                 time.Duration
}

// DefaultLimits returns limits for components that start within seconds.
func DefaultLimits() Limits {
	return Limits{
		ProbeMin: 10 * time.Millisecond, ProbeMax: 50 * time.Millisecond, Recheck: 5 * time.Second,
		RestartMin: 100 * time.Millisecond, RestartMax: 5 * time.Second,
		MaxExits: 10, Window: 5 * time.Minute,
	}
}

// exitHistory counts the recent exits of a process and computes the delay before the next start.
type exitHistory struct {
	limits          Limits
	times           []time.Time
	failedStarts    int // consecutive exits without readiness
	maxFailedStarts int // 0: no limit
}

// add records an exit. It returns the delay before the next start and reports whether a limit is exceeded.
func (h *exitHistory) add(now time.Time, wasReady bool) (time.Duration, bool) {
	h.failedStarts++
	if wasReady {
		h.failedStarts = 0
	}
	kept := h.times[:0]
	for _, t := range h.times {
		if now.Sub(t) < h.limits.Window {
			kept = append(kept, t)
		}
	}
	h.times = append(kept, now)
	isExceeded := len(h.times) > h.limits.MaxExits || h.maxFailedStarts > 0 && h.failedStarts >= h.maxFailedStarts
	return backoff(h.limits.RestartMin, h.limits.RestartMax, len(h.times)-1), isExceeded
}

func backoff(minDelay, maxDelay time.Duration, attempt int) time.Duration {
	delay := minDelay
	for ; attempt > 0 && delay < maxDelay; attempt-- {
		delay *= 2
	}
	return min(delay, maxDelay)
}

// sleep waits for the delay. It returns false if the context ends earlier.
func sleep(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
