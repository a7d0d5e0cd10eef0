package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast.dev/node/internal/component"
	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/settings"
	"holdfast.dev/node/internal/supervisor"
)

func testNode(t *testing.T, state, address string, env map[string]string) *Node {
	t.Helper()
	get := func(key string) string {
		if key == "HOLDFAST_NODE_NAME" {
			return "n1"
		}
		return env[key]
	}
	s, err := settings.FromEnv(get)
	if err != nil {
		t.Fatal(err)
	}
	n := New(layout.Layout{State: state, Run: t.TempDir()}, s)
	n.Address = netip.MustParseAddr(address)
	for _, dir := range n.StateDirs() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func ensure(t *testing.T, n *Node, now time.Time) []string {
	t.Helper()
	components, err := n.ensureCertificates(now)
	if err != nil {
		t.Fatal(err)
	}
	return components
}

func TestCertificatesAreIssuedOnce(t *testing.T) {
	state, now := t.TempDir(), time.Now()
	n := testNode(t, state, "172.20.0.2", nil)
	if components := ensure(t, n, now); len(components) != 7 {
		t.Errorf("first boot: %v", components)
	}
	if components := ensure(t, n, now); len(components) != 0 {
		t.Errorf("second call: %v", components)
	}
	info, err := os.Stat(n.Kubeconfig("admin"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("admin kubeconfig: %v %v", info, err)
	}
}

func TestChangedAddressOrNameRestartsOnlyAffectedServers(t *testing.T) {
	state, now := t.TempDir(), time.Now()
	ensure(t, testNode(t, state, "172.20.0.2", nil), now)
	admin := filepath.Join(state, "kubeconfig", "admin.yaml")
	before, _ := os.ReadFile(admin)
	components := ensure(t, testNode(t, state, "172.20.0.9", nil), now)
	if !slices.Equal(components, []string{component.APIServer, component.Kubelet}) {
		t.Errorf("address: %v", components)
	}
	components = ensure(t, testNode(t, state, "172.20.0.9", map[string]string{"HOLDFAST_API_SANS": "host.example"}), now)
	if !slices.Equal(components, []string{component.APIServer}) {
		t.Errorf("name: %v", components)
	}
	if after, _ := os.ReadFile(admin); string(before) != string(after) {
		t.Error("the kubeconfig of the administrator depends on the address")
	}
}

func TestLongStopRenewsAllLeavesAndNoCA(t *testing.T) {
	state, now := t.TempDir(), time.Now()
	n := testNode(t, state, "172.20.0.2", nil)
	ensure(t, n, now)
	ca, _ := os.ReadFile(filepath.Join(n.PKI(), "ca.crt"))
	if components := ensure(t, n, now.Add(500*24*time.Hour)); len(components) != 7 {
		t.Errorf("components: %v", components)
	}
	if after, _ := os.ReadFile(filepath.Join(n.PKI(), "ca.crt")); string(ca) != string(after) {
		t.Error("the CA certificate changed")
	}
}

func TestStaleMountsReturnsNestedMountsFirst(t *testing.T) {
	table := `1 0 0:1 / / rw - overlay overlay rw
2 1 0:2 / /run rw - tmpfs tmpfs rw
3 2 0:3 / /run/containerd/io/x/rootfs rw - overlay overlay rw
4 1 0:4 / /var/lib/holdfast rw - ext4 /dev/x rw
5 4 0:5 / /var/lib/holdfast/kubelet/pods/1/vol\040ume rw - tmpfs tmpfs rw
6 5 0:6 / /var/lib/holdfast/kubelet/pods/1/vol\040ume/sub rw - tmpfs tmpfs rw
7 4 0:7 / /var/lib/holdfast/kubelet-other rw - tmpfs tmpfs rw
`
	got := staleMounts(table, []string{"/run/containerd", "/var/lib/holdfast/kubelet"})
	want := []string{"/var/lib/holdfast/kubelet/pods/1/vol ume/sub", "/var/lib/holdfast/kubelet/pods/1/vol ume", "/run/containerd/io/x/rootfs"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestStatusOfEarlierBootIsNotReady(t *testing.T) {
	start := time.Date(2030, 1, 1, 12, 0, 0, 500, time.UTC)
	node := func(status, heartbeat string) string {
		return fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"message":"m","lastHeartbeatTime":%q}]}}`, status, heartbeat)
	}
	pod := func(ready bool, started string) string {
		return fmt.Sprintf(`{"status":{"containerStatuses":[{"ready":%v,"state":{"running":{"startedAt":%q}}}]}}`, ready, started)
	}
	old, fresh := "2030-01-01T11:59:59Z", "2030-01-01T12:00:00Z"
	for name, c := range map[string]struct {
		reason  string
		isReady bool
	}{
		"node fresh":      {nodeNotReadyReason([]byte(node("True", fresh)), start), true},
		"node old":        {nodeNotReadyReason([]byte(node("True", old)), start), false},
		"node not ready":  {nodeNotReadyReason([]byte(node("False", fresh)), start), false},
		"node new":        {nodeNotReadyReason([]byte(`{}`), start), false},
		"pod fresh":       {podNotReadyReason([]byte(pod(true, fresh)), start), true},
		"pod old":         {podNotReadyReason([]byte(pod(true, old)), start), false},
		"pod not ready":   {podNotReadyReason([]byte(pod(false, fresh)), start), false},
		"pod pending":     {podNotReadyReason([]byte(`{"status":{"phase":"Pending"}}`), start), false},
		"pod terminating": {podNotReadyReason([]byte(`{"metadata":{"deletionTimestamp":"x"}}`), start), false},
	} {
		if (c.reason == "") != c.isReady {
			t.Errorf("%s: %q", name, c.reason)
		}
	}
}

func TestUnitGraphIsValidAndEtcdStopsLast(t *testing.T) {
	n := testNode(t, t.TempDir(), "172.20.0.2", nil)
	ensure(t, n, time.Now())
	if err := n.createClients(); err != nil {
		t.Fatal(err)
	}
	if _, err := supervisor.New(nil, t.TempDir(), nil, n.units()); err != nil {
		t.Error(err)
	}
	stages := n.stopStages()
	if !slices.Equal(stages[0].Units, []string{component.Kubelet}) || !slices.Equal(stages[len(stages)-1].Units, []string{component.Etcd}) {
		t.Errorf("%v", stages)
	}
}

func TestTooFewInotifyInstancesRequireManualAction(t *testing.T) {
	created := 0
	create := func() (int, error) {
		if created == 3 {
			return -1, unix.EMFILE
		}
		created++
		return newInotifyInstance()
	}
	err := checkInotifyInstances(create, 5)
	if !errors.As(err, new(ManualActionError)) || !strings.Contains(err.Error(), "3 free instances, and a node needs 5") ||
		!strings.Contains(err.Error(), "sysctl") {
		t.Fatalf("got %v", err)
	}
	if err := checkInotifyInstances(newInotifyInstance, 2); err != nil {
		t.Fatal(err)
	}
}
