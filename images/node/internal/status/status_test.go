package status

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

func serve(t *testing.T) (*Board, string) {
	t.Helper()
	board := NewBoard(time.Now())
	path := filepath.Join(t.TempDir(), "s.sock")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := Serve(ctx, path, board); err != nil {
		t.Fatal(err)
	}
	return board, path
}

func TestLevels(t *testing.T) {
	board := NewBoard(time.Now())
	if missing := Missing("api", board.Snapshot()); len(missing) != 1 || missing[0].State != "unknown" {
		t.Errorf("empty board: %v", missing)
	}
	board.Set(APIServer, StateReady, "")
	if missing := Missing("api", board.Snapshot()); missing != nil {
		t.Errorf("api: %v", missing)
	}
	board.Set(Node, "unready", "network plugin not ready")
	missing := Missing("node", board.Snapshot())
	if len(missing) != 1 || missing[0].Detail != "network plugin not ready" {
		t.Errorf("node: %v", missing)
	}
}

func TestAskGivesTheSnapshot(t *testing.T) {
	board, path := serve(t)
	board.Set("etcd", "starting", "")
	board.Set("etcd", StateReady, "")
	entries, err := Ask(path, time.Second)
	if err != nil || len(entries) != 1 || entries[0].State != StateReady {
		t.Errorf("%v %v", entries, err)
	}
}

func TestWatchGetsCurrentAndLater(t *testing.T) {
	board, path := serve(t)
	board.Set("etcd", "starting", "")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var states []string
	err := Watch(ctx, path, func(entry Entry) bool {
		states = append(states, entry.State)
		if entry.State == "starting" {
			board.Set("etcd", StateReady, "")
		}
		return entry.State != StateReady
	})
	if err != nil || len(states) != 2 {
		t.Errorf("%v %v", states, err)
	}
}

func TestWatchWaitsForTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late.sock")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	seen := make(chan error, 1)
	go func() { seen <- Watch(ctx, path, func(Entry) bool { return false }) }()
	board := NewBoard(time.Now())
	board.Set("etcd", StateReady, "")
	if err := Serve(ctx, path, board); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Error(err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	_, path := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := Watch(ctx, path, func(Entry) bool { return true }); err != context.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestUnchangedIsSilent(t *testing.T) {
	board := NewBoard(time.Now())
	board.Set("etcd", StateReady, "")
	if _, changed := board.Set("etcd", StateReady, ""); changed {
		t.Error("told twice")
	}
}

func TestFaultsNameWhatIsDownEvenWhenTheLevelIsReached(t *testing.T) {
	board := NewBoard(time.Now())
	for _, component := range Levels["ready"] {
		board.Set(component, StateReady, "")
	}
	if faults := Faults(board.Snapshot()); faults != nil {
		t.Errorf("healthy: %v", faults)
	}
	board.Set("kube-scheduler", "died", "exit code 1")
	if faults := Faults(board.Snapshot()); len(faults) != 1 || faults[0].Component != "kube-scheduler" {
		t.Errorf("scheduler down: %v", faults)
	}
}
