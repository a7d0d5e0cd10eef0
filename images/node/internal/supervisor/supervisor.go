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

// Change is told whenever a unit's state changes.
type Change struct {
	Unit   string
	State  State
	Detail string // why, when there is a why
}

// Supervisor runs units. Create it with New, then Run, then Stop.
type Supervisor struct {
	Reaper  *Reaper
	Limits  Limits
	LogDir  string
	LogSize int64
	Observe func(Change) // called in order for each unit; must not block

	units map[string]*runner
	order []string
	fatal chan error
	wg    sync.WaitGroup
}

// New checks the graph: unknown needs and cycles are mistakes of the caller.
func New(reaper *Reaper, logDir string, observe func(Change), units []Unit) (*Supervisor, error) {
	s := &Supervisor{
		Reaper: reaper, Limits: DefaultLimits(), LogDir: logDir, LogSize: 8 << 20, Observe: observe,
		units: map[string]*runner{}, fatal: make(chan error, len(units)),
	}
	for _, unit := range units {
		if unit.Grace == 0 {
			unit.Grace = 1500 * time.Millisecond
		}
		s.units[unit.Name] = newRunner(s, unit)
		s.order = append(s.order, unit.Name)
	}
	for _, name := range s.order {
		if err := s.check(name, nil); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Supervisor) check(name string, path []string) error {
	if slices.Contains(path, name) {
		return fmt.Errorf("units need each other: %v", append(path, name))
	}
	unit, known := s.units[name]
	if !known {
		return fmt.Errorf("unit %s needs unknown %s", path[len(path)-1], name)
	}
	for _, need := range unit.Needs {
		if err := s.check(need, append(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// Run starts everything and returns when the context ends (nil) or when a unit is given up (the reason). Nothing is stopped then.
func (s *Supervisor) Run(ctx context.Context) error {
	for _, name := range s.order {
		unit := s.units[name]
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			unit.live()
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.fatal:
		return err
	}
}

// Stage is a set of units that are stopped at the same time, and what to do once they are gone.
type Stage struct {
	Units []string
	Then  func()
}

// Stop ends the units stage by stage; those that no stage names (tasks, mostly) end with the first.
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
		if stage.Then != nil {
			stage.Then()
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

// Restart ends a unit's process; it is started again at once, and that death is not held against it.
func (s *Supervisor) Restart(name string) { s.units[name].restart() }

// Tail returns the last lines of a unit's log.
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

func (s *Supervisor) giveUp(err error) {
	select {
	case s.fatal <- err:
	default: // One reason is enough.
	}
}
