package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Change is a change of the state of a unit.
type Change struct {
	Unit   string
	State  State
	Detail string // the reason, if there is one
}

// Supervisor runs units. Call New, Run and Stop in this order.
type Supervisor struct {
	Reaper  *Reaper
	Limits  Limits
	LogDir  string
	LogSize int64
	Observe func(Change) // called for each change, in order for each unit; must not block

	units map[string]*runner
	order []string
	fatal chan error
	wg    sync.WaitGroup
}

// New returns a supervisor. It returns an error if the units have unknown needs or a cycle.
func New(reaper *Reaper, logDir string, observe func(Change), units []Unit) (*Supervisor, error) {
	s := &Supervisor{
		Reaper: reaper, Limits: DefaultLimits(), LogDir: logDir, LogSize: 8 << 20, Observe: observe,
		units: map[string]*runner{}, fatal: make(chan error, len(units)),
	}
	for _, unit := range units {
		if unit.GracePeriod == 0 {
			unit.GracePeriod = 1500 * time.Millisecond
		}
		s.units[unit.Name] = newRunner(s, unit)
		s.order = append(s.order, unit.Name)
	}
	for _, name := range s.order {
		if err := s.checkNeeds(name, nil); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Supervisor) checkNeeds(name string, path []string) error {
	if slices.Contains(path, name) {
		return fmt.Errorf("units: cycle in needs: %v", append(path, name))
	}
	unit, known := s.units[name]
	if !known {
		return fmt.Errorf("unit %s: needs unknown unit %s", path[len(path)-1], name)
	}
	for _, need := range unit.Needs {
		if err := s.checkNeeds(need, append(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// Run starts all units. It returns nil when the context ends, and an error when a unit exceeds its restart limit. It stops no
// unit; call Stop for that.
func (s *Supervisor) Run(ctx context.Context) error {
	for _, name := range s.order {
		unit := s.units[name]
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			unit.run()
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.fatal:
		return err
	}
}

// Stage is a set of units that stop in parallel. AfterStop runs when all of them have stopped.
type Stage struct {
	Units     []string
	AfterStop func()
}

// Stop stops the units in stages. Units that are in no stage, such as tasks, stop in the first stage.
func (s *Supervisor) Stop(stages []Stage) {
	first := slices.Clone(s.order)
	for _, stage := range stages {
		first = slices.DeleteFunc(first, func(name string) bool { return slices.Contains(stage.Units, name) })
	}
	for i, stage := range stages {
		units := stage.Units
		if i == 0 {
			units = append(first, units...)
		}
		s.stopAll(units)
		if stage.AfterStop != nil {
			stage.AfterStop()
		}
	}
}

func (s *Supervisor) stopAll(units []string) {
	var wg sync.WaitGroup
	for _, name := range units {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s.units[name].stop()
		}()
	}
	wg.Wait()
}

// Restart restarts the process of a unit without a delay. The exit does not count for the restart limit.
func (s *Supervisor) Restart(name string) { s.units[name].restart() }

// Tail returns the last lines of the log of a unit.
func (s *Supervisor) Tail(name string) string {
	if log := s.units[name].log; log != nil {
		return log.Tail()
	}
	return ""
}

func (s *Supervisor) openLog(name string) (*LogFile, error) {
	if err := os.MkdirAll(s.LogDir, 0o755); err != nil {
		return nil, err
	}
	return OpenLogFile(filepath.Join(s.LogDir, name+".log"), s.LogSize)
}

func (s *Supervisor) fail(err error) {
	select {
	case s.fatal <- err:
	default: // Run has an error already.
	}
}
