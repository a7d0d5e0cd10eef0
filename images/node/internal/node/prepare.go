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

// containerdState is containerd's volatile half: sockets and mounts of running containers.
const containerdState = "/run/containerd"

// prepareSystem makes the container fit for running containers in it. Everything may be done twice.
func (n *Node) prepareSystem(ctx context.Context) error {
	// Mounts that the kubelet makes must be seen by containerd's children and the other way round.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w (CAP_SYS_ADMIN is needed)", err)
	}
	plan, err := cgroup.Prepare()
	if err != nil {
		return err
	}
	n.say("cgroup version %d", plan.Version)
	if err := n.clearStale(); err != nil {
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
	if err := n.machineID(); err != nil {
		return err
	}
	n.kernelSettings()
	n.chooseIptables(ctx)
	return nil
}

// clearStale removes what an earlier life in the same container may have left: first mounts, or the removal would reach
// through them into live data.
func (n *Node) clearStale() error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range staleMounts(string(table), []string{containerdState, n.Layout.Kubelet(), n.Layout.Containerd(), n.Layout.Run, "/run/netns"}) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount stale %s: %w", point, err)
		}
	}
	return errors.Join(os.RemoveAll(containerdState), os.RemoveAll(n.Layout.Run))
}

// staleMounts returns the mount points strictly below any of the roots, the deepest first.
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
	// Later lines are mounted on top of earlier ones.
	slices.Reverse(points)
	return points
}

// machineID gives the node an identity that outlives the container, and shows it where the kubelet looks.
func (n *Node) machineID() error {
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

// kernelSettings sets what pods' traffic needs. A kernel without one of them still runs most pods, so it is told and left.
func (n *Node) kernelSettings() {
	for path, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":                 "1",
		"/proc/sys/net/bridge/bridge-nf-call-iptables":  "1",
		"/proc/sys/net/bridge/bridge-nf-call-ip6tables": "1",
	} {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			n.say("warning: %s=%s: %v", path, value, err)
		}
	}
}

// chooseIptables falls back to the older interface where the kernel lacks nf_tables.
func (n *Node) chooseIptables(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := n.reaper.Output(ctx, "/usr/sbin/iptables-nft", "-t", "nat", "-nL", "PREROUTING"); err == nil {
		return
	}
	n.say("this kernel has no nf_tables: iptables-legacy is used")
	for _, tool := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		target := "/usr/sbin/" + strings.Replace(tool, "tables", "tables-legacy", 1)
		if err := os.Symlink(target, filepath.Join(n.Bin(), tool)); err != nil {
			n.say("warning: %v", err)
		}
	}
}

// writeConfigs renders every configuration file for the current address.
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
		Root: n.Layout.Containerd(), State: containerdState, Socket: n.ContainerdSocket(),
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
