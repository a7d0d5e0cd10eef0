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

func board(t *testing.T) (*status.Board, string) {
	t.Helper()
	b, path := status.NewBoard(time.Now()), filepath.Join(t.TempDir(), "s.sock")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := status.Serve(ctx, path, b); err != nil {
		t.Fatal(err)
	}
	return b, path
}

func TestDispatchByNameThenByArgument(t *testing.T) {
	var got []string
	all := map[string]Func{"etcd": func(args []string) int { got = args; return 7 }}
	for _, args := range [][]string{{"/usr/bin/etcd", "-x"}, {"holdfast-node", "etcd", "-x"}} {
		if code := Dispatch(all, args); code != 7 || strings.Join(got, " ") != "etcd -x" {
			t.Errorf("%v: %d %v", args, code, got)
		}
	}
	for _, args := range [][]string{{"holdfast-node"}, {"holdfast-node", "bogus"}} {
		if code := Dispatch(all, args); code != ExitUsage {
			t.Errorf("%v: %d", args, code)
		}
	}
}

func TestWaitStreamsUntilReady(t *testing.T) {
	b, path := board(t)
	b.Set(status.APIServer, "starting", "")
	go b.Set(status.APIServer, status.StateReady, "")
	var out bytes.Buffer
	if code := waitFor(path, "api", 10*time.Second, json.NewEncoder(&out)); code != ExitDone {
		t.Errorf("exit %d: %s", code, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last outcome
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.State != "ready" {
		t.Errorf("%v %v", last, err)
	}
}

func TestWaitSaysWhatIsMissing(t *testing.T) {
	b, path := board(t)
	b.Set(status.APIServer, status.StateReady, "")
	b.Set(status.Node, "waiting", "network is not ready")
	for socket, want := range map[string]string{path: "node is waiting (network is not ready)", path + ".absent": "kube-apiserver is unknown"} {
		var out bytes.Buffer
		code := waitFor(socket, "node", 50*time.Millisecond, json.NewEncoder(&out))
		if code != ExitFailed || !strings.Contains(out.String(), `"state":"timeout"`) || !strings.Contains(out.String(), want) {
			t.Errorf("exit %d: %s", code, out.String())
		}
	}
}

func TestHealth(t *testing.T) {
	b, path := board(t)
	if health(path) != ExitFailed || health(path+".absent") != ExitFailed {
		t.Error("healthy without being ready")
	}
	for _, component := range status.Levels["ready"] {
		b.Set(component, status.StateReady, "")
	}
	if health(path) != ExitDone {
		t.Error("not healthy")
	}
}
