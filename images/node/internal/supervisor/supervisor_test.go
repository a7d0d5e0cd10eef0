package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var reaper = NewReaper()

// recorder stores all changes, and tests wait for them.
type recorder struct {
	mu      sync.Mutex
	changes []string
	wake    chan struct{}
}

func newRecorder() *recorder { return &recorder{wake: make(chan struct{}, 1000)} }

func (r *recorder) observe(change Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, change.Unit+" "+string(change.State))
	r.wake <- struct{}{}
}

func (r *recorder) count(want string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, change := range r.changes {
		if change == want {
			n++
		}
	}
	return n
}

func (r *recorder) index(want string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Index(r.changes, want)
}

func (r *recorder) waitFor(t *testing.T, want string, times int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for r.count(want) < times {
		select {
		case <-r.wake:
		case <-deadline:
			t.Fatalf("timeout: fewer than %d × %q in %v", times, want, r.changes)
		}
	}
}

// child returns a unit that runs a shell script; it is ready when the script has created READY_FILE.
func child(dir, name, script string, needs ...string) Unit {
	readyFile := filepath.Join(dir, name)
	return Unit{
		Name: name, Needs: needs,
		NewCommand: func() (Command, error) {
			os.Remove(readyFile)
			return Command{Args: []string{"/bin/sh", "-c", strings.ReplaceAll(script, "READY_FILE", readyFile)}}, nil
		},
		Ready: func(context.Context) error {
			_, err := os.Stat(readyFile)
			return err
		},
	}
}

const serveScript = "touch READY_FILE; trap 'exit 0' TERM; while :; do sleep 0.05; done"

func (r *runner) currentPID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

type harness struct {
	*Supervisor
	*recorder
	result chan error
	cancel context.CancelFunc
}

func start(t *testing.T, limits func(*Limits), units ...Unit) harness {
	t.Helper()
	record := newRecorder()
	s, err := New(reaper, t.TempDir(), record.observe, units)
	if err != nil {
		t.Fatal(err)
	}
	s.Limits.RestartMin, s.Limits.RestartMax, s.Limits.Recheck = time.Millisecond, 5*time.Millisecond, 10*time.Millisecond
	if limits != nil {
		limits(&s.Limits)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := harness{s, record, make(chan error, 1), cancel}
	go func() { h.result <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.Stop([]Stage{{}})
	})
	return h
}

func TestUnitStartsAfterItsNeedsAreReady(t *testing.T) {
	dir := t.TempDir()
	task := Unit{Name: "task", Needs: []string{"a"}, Task: func(context.Context) error { return nil }}
	h := start(t, nil, child(dir, "c", serveScript, "b", "task"), child(dir, "b", serveScript, "a"), child(dir, "a", serveScript), task)
	h.waitFor(t, "c ready", 1)
	for _, pair := range [][2]string{{"a ready", "b starting"}, {"a ready", "task starting"}, {"b ready", "c starting"}, {"task ready", "c starting"}} {
		if h.index(pair[0]) > h.index(pair[1]) {
			t.Errorf("%q is after %q", pair[0], pair[1])
		}
	}
}

func TestKilledProcessIsRestarted(t *testing.T) {
	h := start(t, nil, child(t.TempDir(), "a", serveScript))
	for run := 1; run <= 3; run++ {
		h.waitFor(t, "a ready", run)
		_ = syscall.Kill(h.units["a"].currentPID(), syscall.SIGKILL)
		h.waitFor(t, "a died", run)
	}
	h.waitFor(t, "a ready", 4)
}

func TestCrashLoopFailsWithLastLogLines(t *testing.T) {
	h := start(t, func(l *Limits) { l.MaxExits = 3 }, child(t.TempDir(), "a", "echo the disk is missing; exit 7"))
	err := <-h.result
	if err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Fatalf("got %v", err)
	}
	if h.count("a died") != 4 {
		t.Errorf("%d exits", h.count("a died"))
	}
	if !strings.Contains(err.Error(), "the disk is missing") {
		t.Errorf("error without log lines: %v", err)
	}
}

func TestFailedStartsHaveSeparateLimit(t *testing.T) {
	unit := child(t.TempDir(), "a", "exit 1")
	unit.MaxFailedStarts = 2
	h := start(t, nil, unit)
	if err := <-h.result; err == nil || h.count("a died") != 2 {
		t.Errorf("%v after %d exits", err, h.count("a died"))
	}
}

func TestExitsOutsideWindowDoNotCount(t *testing.T) {
	limits := DefaultLimits()
	h := exitHistory{limits: limits}
	now := time.Now()
	for i := range 100 {
		if _, isExceeded := h.add(now.Add(time.Duration(i)*time.Minute), true); isExceeded {
			t.Fatal("one exit per minute exceeds the limit")
		}
	}
	h = exitHistory{limits: limits}
	for i := 1; ; i++ {
		if _, isExceeded := h.add(now, true); isExceeded {
			if i != limits.MaxExits+1 {
				t.Errorf("limit exceeded at exit %d", i)
			}
			return
		}
	}
}

func TestBackoffDoublesUpToMaximum(t *testing.T) {
	var got []time.Duration
	for attempt := range 5 {
		got = append(got, backoff(10, 50, attempt))
	}
	if !slices.Equal(got, []time.Duration{10, 20, 40, 50, 50}) {
		t.Errorf("%v", got)
	}
}

func TestStopFollowsStagesAndRunsHooks(t *testing.T) {
	dir := t.TempDir()
	h := start(t, nil, child(dir, "store", serveScript), child(dir, "writer", serveScript, "store"), child(dir, "other", serveScript))
	h.waitFor(t, "writer ready", 1)
	h.waitFor(t, "other ready", 1)
	storeRunsAtHook := false
	h.Stop([]Stage{
		{Units: []string{"writer"}, AfterStop: func() { storeRunsAtHook = h.count("store stopped") == 0 }},
		{Units: []string{"store"}},
	})
	if !storeRunsAtHook || h.index("writer stopped") > h.index("store stopped") || h.index("other stopped") > h.index("store stopped") {
		t.Errorf("store runs at hook: %v; %v", storeRunsAtHook, h.changes)
	}
	if h.count("writer died")+h.count("store died") > 0 {
		t.Error("a stop was reported as died")
	}
}

func TestProcessThatIgnoresSigtermIsKilled(t *testing.T) {
	unit := child(t.TempDir(), "stubborn", "trap '' TERM; touch READY_FILE; while :; do sleep 0.05; done")
	unit.GracePeriod = 50 * time.Millisecond
	h := start(t, nil, unit)
	h.waitFor(t, "stubborn ready", 1)
	h.Stop([]Stage{{Units: []string{"stubborn"}}})
	if h.count("stubborn stopped") != 1 {
		t.Errorf("%v", h.changes)
	}
}

func TestStopWhileWaitingForNeeds(t *testing.T) {
	dir := t.TempDir()
	h := start(t, nil, child(dir, "never", "sleep 1000"), child(dir, "b", serveScript, "never"))
	h.waitFor(t, "never starting", 1)
	h.Stop([]Stage{{Units: []string{"b"}}, {Units: []string{"never"}}})
	if h.count("b starting") != 0 {
		t.Error("the unit started before its need was ready")
	}
}

func TestRestartDoesNotCountAsExit(t *testing.T) {
	h := start(t, func(l *Limits) { l.MaxExits = 1 }, child(t.TempDir(), "a", serveScript))
	for run := 1; run <= 4; run++ {
		h.waitFor(t, "a ready", run)
		h.Restart("a")
	}
	h.waitFor(t, "a ready", 5)
	if h.count("a died") != 0 {
		t.Errorf("%v", h.changes)
	}
}

func TestTaskIsRetriedUntilItSucceeds(t *testing.T) {
	tries := 0
	h := start(t, nil, Unit{Name: "task", Task: func(context.Context) error {
		if tries++; tries < 4 {
			return errors.New("not yet")
		}
		return nil
	}})
	h.waitFor(t, "task ready", 1)
	if tries != 4 {
		t.Errorf("%d tries", tries)
	}
}

func TestUnitBecomesUnreadyAndReadyAgain(t *testing.T) {
	dir := t.TempDir()
	h := start(t, nil, child(dir, "a", serveScript))
	h.waitFor(t, "a ready", 1)
	os.Remove(filepath.Join(dir, "a"))
	h.waitFor(t, "a unready", 1)
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.waitFor(t, "a ready", 2)
}

func TestInvalidGraphIsRejected(t *testing.T) {
	for name, units := range map[string][]Unit{
		"unknown": {{Name: "a", Needs: []string{"b"}}},
		"cycle":   {{Name: "a", Needs: []string{"b"}}, {Name: "b", Needs: []string{"a"}}},
	} {
		if _, err := New(reaper, t.TempDir(), nil, units); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOutputErrorContainsText(t *testing.T) {
	text, err := reaper.Output(context.Background(), "/bin/sh", "-c", "echo fine")
	if text != "fine" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	_, err = reaper.Output(context.Background(), "/bin/sh", "-c", "echo no space; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no space") || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err = reaper.Output(ctx, "/bin/sleep", "1000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestLogRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	log, err := OpenLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		fmt.Fprintf(log, "line %d\n", i)
	}
	for _, name := range []string{path, path + ".1"} {
		if info, err := os.Stat(name); err != nil || info.Size() > 100 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if tail := log.Tail(); !strings.HasSuffix(tail, "line 49") || strings.Count(tail, "\n") != tailLines-1 {
		t.Errorf("tail %q", tail)
	}
}
