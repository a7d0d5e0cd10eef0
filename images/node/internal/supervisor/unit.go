package supervisor

import (
	"context"
	"time"
)

// State is where a unit is in its life.
type State string

// The states, in the order in which a unit passes through them.
const (
	Waiting  State = "waiting"
	Starting State = "starting"
	Ready    State = "ready"
	Unready  State = "unready" // was ready, runs, does not answer
	Died     State = "died"
	Stopped  State = "stopped"
)

// Unit is one thing to keep running, or (with Do) one thing to get done.
type Unit struct {
	Name  string
	Needs []string // units that must be ready first

	// Start returns the command; it is asked anew at each start, so that a restart sees changed addresses and certificates.
	Start func() (Command, error)
	// Ready returns nil once the process answers. It is tried with a short backoff until then, and now and again afterwards.
	Ready func(context.Context) error
	// Do is a task instead of a process: ready once it returned nil, tried again until then.
	Do func(context.Context) error

	Grace           time.Duration // between SIGTERM and SIGKILL; default 1.5 s
	MaxFailedStarts int           // deaths in a row before ever being ready; default: as MaxDeaths
}

// Limits of patience and pace; variables of the Supervisor so that tests need not wait.
type Limits struct {
	ProbeMin, ProbeMax     time.Duration // pace of readiness checks
	Recheck                time.Duration // pace of checks once ready
	RestartMin, RestartMax time.Duration
	MaxDeaths              int
	Window                 time.Duration // in which MaxDeaths are counted
}

// DefaultLimits suit components that start within seconds.
func DefaultLimits() Limits {
	return Limits{
		ProbeMin: 10 * time.Millisecond, ProbeMax: 50 * time.Millisecond, Recheck: 5 * time.Second,
		RestartMin: 100 * time.Millisecond, RestartMax: 5 * time.Second,
		MaxDeaths: 10, Window: 5 * time.Minute,
	}
}

// deaths counts the recent ones and derives the pause before the next start.
type deaths struct {
	limits  Limits
	times   []time.Time
	failed  int // in a row, without having been ready
	maximum int // of failed
}

// add records a death and says how long to pause, and whether to give up.
func (d *deaths) add(now time.Time, wasReady bool) (time.Duration, bool) {
	d.failed++
	if wasReady {
		d.failed = 0
	}
	kept := d.times[:0]
	for _, t := range d.times {
		if now.Sub(t) < d.limits.Window {
			kept = append(kept, t)
		}
	}
	d.times = append(kept, now)
	giveUp := len(d.times) > d.limits.MaxDeaths || d.maximum > 0 && d.failed >= d.maximum
	return backoff(d.limits.RestartMin, d.limits.RestartMax, len(d.times)-1), giveUp
}

func backoff(least, most time.Duration, step int) time.Duration {
	pause := least
	for ; step > 0 && pause < most; step-- {
		pause *= 2
	}
	return min(pause, most)
}

// sleep waits and says whether the whole time passed.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
