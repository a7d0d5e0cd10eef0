package applet

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast.dev/node/internal/status"
)

func serveStatus(t *testing.T) (*status.Tracker, string) {
	t.Helper()
	tracker, path := status.NewTracker(time.Now()), filepath.Join(t.TempDir(), "s.sock")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := status.Serve(ctx, path, tracker); err != nil {
		t.Fatal(err)
	}
	return tracker, path
}

func TestDispatchSelectsByNameThenByArgument(t *testing.T) {
	var got []string
	applets := map[string]Func{"etcd": func(args []string) int { got = args; return 7 }}
	for _, args := range [][]string{{"/usr/bin/etcd", "-x"}, {"holdfast-node", "etcd", "-x"}} {
		if code := Dispatch(applets, args); code != 7 || strings.Join(got, " ") != "etcd -x" {
			t.Errorf("%v: %d %v", args, code, got)
		}
	}
	for _, args := range [][]string{{"holdfast-node"}, {"holdfast-node", "bogus"}} {
		if code := Dispatch(applets, args); code != ExitUsage {
			t.Errorf("%v: %d", args, code)
		}
	}
}

func TestWaitPrintsEntriesUntilReady(t *testing.T) {
	tracker, path := serveStatus(t)
	tracker.Set(status.APIServer, "starting", "")
	go tracker.Set(status.APIServer, status.StateReady, "")
	var out bytes.Buffer
	if code := waitFor(path, "api", 10*time.Second, json.NewEncoder(&out)); code != ExitOK {
		t.Errorf("exit %d: %s", code, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last outcome
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.State != "ready" {
		t.Errorf("%v %v", last, err)
	}
}

func TestWaitReportsMissingComponentsOnTimeout(t *testing.T) {
	tracker, path := serveStatus(t)
	tracker.Set(status.APIServer, status.StateReady, "")
	tracker.Set(status.Node, "waiting", "network is not ready")
	for socket, want := range map[string]string{path: "node is waiting (network is not ready)", path + ".absent": "kube-apiserver is unknown"} {
		var out bytes.Buffer
		code := waitFor(socket, "node", 50*time.Millisecond, json.NewEncoder(&out))
		if code != ExitFailed || !strings.Contains(out.String(), `"state":"timeout"`) || !strings.Contains(out.String(), want) {
			t.Errorf("exit %d: %s", code, out.String())
		}
	}
}

func TestHealth(t *testing.T) {
	tracker, path := serveStatus(t)
	if checkHealth(path) != ExitFailed || checkHealth(path+".absent") != ExitFailed {
		t.Error("reported healthy before all components were ready")
	}
	for _, component := range status.Levels["ready"] {
		tracker.Set(component, status.StateReady, "")
	}
	if checkHealth(path) != ExitOK {
		t.Error("reported unhealthy although all components are ready")
	}
}
