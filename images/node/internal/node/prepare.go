package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast.dev/node/internal/atomicfile"
	"holdfast.dev/node/internal/cgroup"
	"holdfast.dev/node/internal/containerd"
	"holdfast.dev/node/internal/network"
)

// containerdStateDir contains the volatile state of containerd: sockets and mounts of running containers.
const containerdStateDir = "/run/containerd"

// prepareSystem prepares the container so that it can run containers. It is idempotent.
func (n *Node) prepareSystem(ctx context.Context) error {
	// Mounts of the kubelet must propagate to the containers of containerd, and the other way round.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w (the container needs CAP_SYS_ADMIN)", err)
	}
	plan, err := cgroup.Prepare()
	if err != nil {
		return err
	}
	n.logf("cgroup version %d", plan.Version)
	if err := n.removeStaleState(); err != nil {
		return err
	}
	for _, dir := range append(n.StateDirs(), n.RunDirs()...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{n.PKI(), n.Kubeconfigs(), n.Layout.Etcd()} {
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	if err := n.ensureMachineID(); err != nil {
		return err
	}
	n.setSysctls()
	n.chooseIptables(ctx)
	return nil
}

// removeStaleState removes the volatile state of an earlier start in the same container. It unmounts first: otherwise the
// removal would delete data inside the mounts.
func (n *Node) removeStaleState() error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range staleMounts(string(table), []string{containerdStateDir, n.Layout.Kubelet(), n.Layout.Containerd(), n.Layout.Run, "/run/netns"}) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount stale %s: %w", point, err)
		}
	}
	return errors.Join(os.RemoveAll(containerdStateDir), os.RemoveAll(n.Layout.Run))
}

// staleMounts returns the mount points below the roots, in the order in which they must be unmounted.
func staleMounts(mountinfo string, roots []string) []string {
	var points []string
	for line := range strings.SplitSeq(mountinfo, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := strings.ReplaceAll(fields[4], `\040`, " ")
		if slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(point, root+"/") }) {
			points = append(points, point)
		}
	}
	// Later mounts may be below or on top of earlier ones.
	slices.Reverse(points)
	return points
}

// ensureMachineID creates a machine ID on the volume, so that it persists, and copies it to the path that the kubelet reads.
func (n *Node) ensureMachineID() error {
	id, err := os.ReadFile(n.MachineID())
	if err != nil || len(strings.TrimSpace(string(id))) != 32 {
		raw := make([]byte, 16)
		if _, err := rand.Read(raw); err != nil {
			return err
		}
		id = []byte(hex.EncodeToString(raw) + "\n")
		if err := atomicfile.Write(n.MachineID(), id, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile("/etc/machine-id", id, 0o644)
}

// setSysctls sets the sysctls of pod networking. It only logs errors, because most pods work without them.
func (n *Node) setSysctls() {
	for path, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":                 "1",
		"/proc/sys/net/bridge/bridge-nf-call-iptables":  "1",
		"/proc/sys/net/bridge/bridge-nf-call-ip6tables": "1",
	} {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			n.logf("warning: cannot set %s to %s: %v", path, value, err)
		}
	}
}

// chooseIptables selects iptables-legacy if the kernel does not support nf_tables.
func (n *Node) chooseIptables(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := n.reaper.Output(ctx, "/usr/sbin/iptables-nft", "-t", "nat", "-nL", "PREROUTING"); err == nil {
		return
	}
	n.logf("kernel: nf_tables is not supported; using iptables-legacy")
	for _, tool := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		target := "/usr/sbin/" + strings.Replace(tool, "tables", "tables-legacy", 1)
		if err := os.Symlink(target, filepath.Join(n.Bin(), tool)); err != nil {
			n.logf("warning: cannot select iptables-legacy: %v", err)
		}
	}
}

// writeConfigs writes all configuration files for the current address.
func (n *Node) writeConfigs() error {
	cni, err := network.CNIConfig(n.PodCIDR, n.CNILeases())
	if err != nil {
		return err
	}
	kubelet, err := n.KubeletConfig()
	if err != nil {
		return err
	}
	corefile, err := n.Corefile()
	if err != nil {
		return err
	}
	runtime, err := containerd.Config{
		Root: n.Layout.Containerd(), State: containerdStateDir, Socket: n.ContainerdSocket(),
		CNIConfig: n.CNIConfig(), Registries: n.Registries(), Snapshotter: containerd.ChooseSnapshotter(n.Layout.Containerd()),
	}.Render()
	if err != nil {
		return err
	}
	for path, data := range map[string][]byte{
		filepath.Join(n.CNIConfig(), "10-holdfast.conflist"): cni,
		n.Config("kubelet.yaml"):                             kubelet,
		n.Config("containerd.toml"):                          runtime,
		filepath.Join(n.DNS(), "Corefile"):                   corefile,
	} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
