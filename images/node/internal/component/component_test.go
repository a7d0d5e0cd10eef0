package component

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"holdfast.dev/node/internal/layout"
	"holdfast.dev/node/internal/settings"
)

func node(t *testing.T, address string) Node {
	t.Helper()
	s, err := settings.FromEnv(func(key string) string { return map[string]string{"HOLDFAST_NODE_NAME": "n1"}[key] })
	if err != nil {
		t.Fatal(err)
	}
	return Node{Layout: layout.Layout{State: "/s", Run: "/r"}, Settings: s, Address: netip.MustParseAddr(address)}
}

func TestOtherComponentsListenOnLoopbackOnly(t *testing.T) {
	n := node(t, "172.20.0.2")
	for name, wants := range map[string][]string{
		Etcd:              {"--listen-client-urls=https://127.0.0.1:2379", "--listen-peer-urls=https://127.0.0.1:2380", "--client-cert-auth", "--peer-client-cert-auth"},
		ControllerManager: {"--bind-address=127.0.0.1"},
		Scheduler:         {"--bind-address=127.0.0.1"},
		Proxy:             {"--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256"},
		Provisioner:       {"--healthz-bind-address=127.0.0.1:10260"},
	} {
		args := n.Args(name)
		for _, want := range wants {
			if !slices.Contains(args, want) {
				t.Errorf("%s: flag %s is missing", name, want)
			}
		}
	}
}

func TestEtcdFlagsDoNotDependOnNodeAddress(t *testing.T) {
	before, after := node(t, "172.20.0.2"), node(t, "172.20.0.9")
	if !slices.Contains(after.Args(APIServer), "--advertise-address=172.20.0.9") || !slices.Contains(after.Args(Kubelet), "--node-ip=172.20.0.9") {
		t.Error("API server or kubelet do not advertise the new address")
	}
	// The datastore persists, and the address can change at each start.
	if !slices.Equal(before.Args(Etcd), after.Args(Etcd)) {
		t.Error("the flags of etcd depend on the address")
	}
}

func TestAllComponentsHaveFlags(t *testing.T) {
	n := node(t, "172.20.0.2")
	for _, name := range []string{Etcd, Containerd, APIServer, ControllerManager, Scheduler, Kubelet, Proxy, Provisioner} {
		if args := n.Args(name); args[0] != "/usr/bin/"+name || len(args) < 3 {
			t.Errorf("%s: %v", name, args)
		}
	}
	if slices.ContainsFunc(n.Args(APIServer), func(arg string) bool { return arg == "--anonymous-auth=true" }) {
		t.Error("anonymous authentication is enabled")
	}
}

func TestKubeletConfig(t *testing.T) {
	data, err := node(t, "172.20.0.2").KubeletConfig()
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		t.Fatal(err)
	}
	if config["maxPods"] != float64(250) || config["cgroupDriver"] != "cgroupfs" || config["podLogsDir"] != "/s/logs/pods" {
		t.Errorf("%s", data)
	}
	if config["singleProcessOOMKill"] != true {
		t.Error("on cgroup v2, one command that exceeds the memory limit ends the whole sandbox")
	}
	if _, set := config["localStorageCapacityIsolation"]; set {
		t.Error("localStorageCapacityIsolation is set; false also disables eviction and image garbage collection")
	}
}

func TestCorefileServesPodsOnly(t *testing.T) {
	data, err := node(t, "172.20.0.2").Corefile()
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{"bind 172.20.0.2\n", "allow net 10.244.0.0/16 172.20.0.2/32", "kubernetes cluster.local", "forward . /etc/resolv.conf"} {
		if !strings.Contains(text, want) {
			t.Errorf("Corefile: %q is missing:\n%s", want, text)
		}
	}
}
