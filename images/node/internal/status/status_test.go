package status

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

func serve(t *testing.T) (*Tracker, string) {
	t.Helper()
	tracker := NewTracker(time.Now())
	path := filepath.Join(t.TempDir(), "s.sock")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := Serve(ctx, path, tracker); err != nil {
		t.Fatal(err)
	}
	return tracker, path
}

func TestLevels(t *testing.T) {
	tracker := NewTracker(time.Now())
	if missing := Missing("api", tracker.Snapshot()); len(missing) != 1 || missing[0].State != "unknown" {
		t.Errorf("empty tracker: %v", missing)
	}
	tracker.Set(APIServer, StateReady, "")
	if missing := Missing("api", tracker.Snapshot()); missing != nil {
		t.Errorf("api: %v", missing)
	}
	tracker.Set(Node, "unready", "network plugin not ready")
	missing := Missing("node", tracker.Snapshot())
	if len(missing) != 1 || missing[0].Detail != "network plugin not ready" {
		t.Errorf("node: %v", missing)
	}
}

func TestGetReturnsCurrentEntries(t *testing.T) {
	tracker, path := serve(t)
	tracker.Set("etcd", "starting", "")
	tracker.Set("etcd", StateReady, "")
	entries, err := Get(path, time.Second)
	if err != nil || len(entries) != 1 || entries[0].State != StateReady {
		t.Errorf("%v %v", entries, err)
	}
}

func TestWatchReceivesCurrentAndLaterEntries(t *testing.T) {
	tracker, path := serve(t)
	tracker.Set("etcd", "starting", "")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var states []string
	err := Watch(ctx, path, func(entry Entry) bool {
		states = append(states, entry.State)
		if entry.State == "starting" {
			tracker.Set("etcd", StateReady, "")
		}
		return entry.State != StateReady
	})
	if err != nil || len(states) != 2 {
		t.Errorf("%v %v", states, err)
	}
}

func TestWatchWaitsForSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late.sock")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- Watch(ctx, path, func(Entry) bool { return false }) }()
	tracker := NewTracker(time.Now())
	tracker.Set("etcd", StateReady, "")
	if err := Serve(ctx, path, tracker); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestWatchEndsWithContext(t *testing.T) {
	_, path := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := Watch(ctx, path, func(Entry) bool { return true }); err != context.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestSetReportsNoChangeForSameState(t *testing.T) {
	tracker := NewTracker(time.Now())
	tracker.Set("etcd", StateReady, "")
	if _, changed := tracker.Set("etcd", StateReady, ""); changed {
		t.Error("Set reported a change")
	}
}

func TestUnhealthyContainsComponentOutsideReadyLevel(t *testing.T) {
	tracker := NewTracker(time.Now())
	for _, component := range Levels["ready"] {
		tracker.Set(component, StateReady, "")
	}
	if unhealthy := Unhealthy(tracker.Snapshot()); unhealthy != nil {
		t.Errorf("all components ready: %v", unhealthy)
	}
	tracker.Set("kube-scheduler", "died", "exit code 1")
	if unhealthy := Unhealthy(tracker.Snapshot()); len(unhealthy) != 1 || unhealthy[0].Component != "kube-scheduler" {
		t.Errorf("scheduler down: %v", unhealthy)
	}
}
