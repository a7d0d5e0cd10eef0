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

// recorder remembers every change and lets a test wait for one.
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

func (r *recorder) await(t *testing.T, want string, times int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for r.count(want) < times {
		select {
		case <-r.wake:
		case <-deadline:
			t.Fatalf("%d × %q did not come: %v", times, want, r.changes)
		}
	}
}

// child is a shell process that says it is ready by making a file.
func child(dir, name, script string, needs ...string) Unit {
	mark := filepath.Join(dir, name)
	return Unit{
		Name: name, Needs: needs,
		Start: func() (Command, error) {
			os.Remove(mark)
			return Command{Args: []string{"/bin/sh", "-c", strings.ReplaceAll(script, "MARK", mark)}}, nil
		},
		Ready: func(context.Context) error {
			_, err := os.Stat(mark)
			return err
		},
	}
}

const serves = "touch MARK; trap 'exit 0' TERM; while :; do sleep 0.05; done"

func (r *runner) pidNow() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

type bench struct {
	*Supervisor
	*recorder
	result chan error
	cancel context.CancelFunc
}

func start(t *testing.T, limits func(*Limits), units ...Unit) bench {
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
	b := bench{s, record, make(chan error, 1), cancel}
	go func() { b.result <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		s.Stop([]Stage{{}})
	})
	return b
}

func TestStartFollowsReadiness(t *testing.T) {
	dir := t.TempDir()
	task := Unit{Name: "task", Needs: []string{"a"}, Do: func(context.Context) error { return nil }}
	b := start(t, nil, child(dir, "c", serves, "b", "task"), child(dir, "b", serves, "a"), child(dir, "a", serves), task)
	b.await(t, "c ready", 1)
	for _, pair := range [][2]string{{"a ready", "b starting"}, {"a ready", "task starting"}, {"b ready", "c starting"}, {"task ready", "c starting"}} {
		if b.index(pair[0]) > b.index(pair[1]) {
			t.Errorf("%q came after %q", pair[0], pair[1])
		}
	}
}

func TestAKilledProcessComesBack(t *testing.T) {
	b := start(t, nil, child(t.TempDir(), "a", serves))
	for life := 1; life <= 3; life++ {
		b.await(t, "a ready", life)
		_ = syscall.Kill(b.units["a"].pidNow(), syscall.SIGKILL)
		b.await(t, "a died", life)
	}
	b.await(t, "a ready", 4)
}

func TestACrashLoopIsGivenUpWithItsLastLines(t *testing.T) {
	b := start(t, func(l *Limits) { l.MaxDeaths = 3 }, child(t.TempDir(), "a", "echo the disk is gone; exit 7"))
	err := <-b.result
	if err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Fatalf("got %v", err)
	}
	if b.count("a died") != 4 {
		t.Errorf("%d deaths", b.count("a died"))
	}
	if !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("no log lines in: %v", err)
	}
}

func TestFailedStartsHaveTheirOwnLimit(t *testing.T) {
	unit := child(t.TempDir(), "a", "exit 1")
	unit.MaxFailedStarts = 2
	b := start(t, nil, unit)
	if err := <-b.result; err == nil || b.count("a died") != 2 {
		t.Errorf("%v after %d deaths", err, b.count("a died"))
	}
}

func TestDeathsAreForgottenAfterTheWindow(t *testing.T) {
	limits := DefaultLimits()
	d := deaths{limits: limits}
	now := time.Now()
	for i := range 100 {
		if _, giveUp := d.add(now.Add(time.Duration(i)*time.Minute), true); giveUp {
			t.Fatal("one death a minute is not a crash loop")
		}
	}
	d = deaths{limits: limits}
	for i := 1; ; i++ {
		if _, giveUp := d.add(now, true); giveUp {
			if i != limits.MaxDeaths+1 {
				t.Errorf("gave up at %d", i)
			}
			return
		}
	}
}

func TestBackoffGrowsToItsCap(t *testing.T) {
	var got []time.Duration
	for step := range 5 {
		got = append(got, backoff(10, 50, step))
	}
	if !slices.Equal(got, []time.Duration{10, 20, 40, 50, 50}) {
		t.Errorf("%v", got)
	}
}

func TestStopIsOrderedAndRunsItsHooks(t *testing.T) {
	dir := t.TempDir()
	b := start(t, nil, child(dir, "store", serves), child(dir, "writer", serves, "store"), child(dir, "other", serves))
	b.await(t, "writer ready", 1)
	b.await(t, "other ready", 1)
	storeAliveAtHook := false
	b.Stop([]Stage{
		{Units: []string{"writer"}, Then: func() { storeAliveAtHook = b.count("store stopped") == 0 }},
		{Units: []string{"store"}},
	})
	if !storeAliveAtHook || b.index("writer stopped") > b.index("store stopped") || b.index("other stopped") > b.index("store stopped") {
		t.Errorf("alive at hook: %v; %v", storeAliveAtHook, b.changes)
	}
	if b.count("writer died")+b.count("store died") > 0 {
		t.Error("a stop is not a death")
	}
}

func TestWhoDoesNotListenIsKilled(t *testing.T) {
	unit := child(t.TempDir(), "deaf", "trap '' TERM; touch MARK; while :; do sleep 0.05; done")
	unit.Grace = 50 * time.Millisecond
	b := start(t, nil, unit)
	b.await(t, "deaf ready", 1)
	b.Stop([]Stage{{Units: []string{"deaf"}}})
	if b.count("deaf stopped") != 1 {
		t.Errorf("%v", b.changes)
	}
}

func TestStopWhileWaitingForNeeds(t *testing.T) {
	dir := t.TempDir()
	b := start(t, nil, child(dir, "never", "sleep 1000"), child(dir, "b", serves, "never"))
	b.await(t, "never starting", 1)
	b.Stop([]Stage{{Units: []string{"b"}}, {Units: []string{"never"}}})
	if b.count("b starting") != 0 {
		t.Error("started without its need")
	}
}

func TestRestartIsNotADeath(t *testing.T) {
	b := start(t, func(l *Limits) { l.MaxDeaths = 1 }, child(t.TempDir(), "a", serves))
	for life := 1; life <= 4; life++ {
		b.await(t, "a ready", life)
		b.Restart("a")
	}
	b.await(t, "a ready", 5)
	if b.count("a died") != 0 {
		t.Errorf("%v", b.changes)
	}
}

func TestATaskIsTriedUntilItSucceeds(t *testing.T) {
	tries := 0
	b := start(t, nil, Unit{Name: "task", Do: func(context.Context) error {
		if tries++; tries < 4 {
			return errors.New("not yet")
		}
		return nil
	}})
	b.await(t, "task ready", 1)
	if tries != 4 {
		t.Errorf("%d tries", tries)
	}
}

func TestUnreadyIsNoticedAndForgiven(t *testing.T) {
	dir := t.TempDir()
	b := start(t, nil, child(dir, "a", serves))
	b.await(t, "a ready", 1)
	os.Remove(filepath.Join(dir, "a"))
	b.await(t, "a unready", 1)
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.await(t, "a ready", 2)
}

func TestMistakesInTheGraph(t *testing.T) {
	for name, units := range map[string][]Unit{
		"unknown": {{Name: "a", Needs: []string{"b"}}},
		"cycle":   {{Name: "a", Needs: []string{"b"}}, {Name: "b", Needs: []string{"a"}}},
	} {
		if _, err := New(reaper, t.TempDir(), nil, units); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}

func TestOutputCarriesTheTextOfAFailure(t *testing.T) {
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
