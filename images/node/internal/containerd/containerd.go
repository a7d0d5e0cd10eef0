// Package containerd renders containerd's configuration and brings the baked-in images into it.
package containerd

import (
	"bytes"
	"os"
	"path/filepath"
	"text/template"

	"golang.org/x/sys/unix"
)

// Names of the images that ship inside the node.
const (
	PauseImage = "holdfast.dev/pause:1"
	DNSImage   = "holdfast.dev/coredns:1.12.4"
)

// Config is what differs between nodes.
type Config struct {
	Root        string
	State       string
	Socket      string
	CNIConfig   string
	Registries  string
	Snapshotter string
}

var shape = template.Must(template.New("containerd").Parse(`version = 2
root = "{{.Root}}"
state = "{{.State}}"
# Snapshotters for filesystems that are not here would only log that they are not.
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  # A node without CAP_SYS_RESOURCE may not lower a score; a pod that asks for it would not start.
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{{.CNIConfig}}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
    default_runtime_name = "runc"
    discard_unpacked_layers = false

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Registries}}"
`))

// Render returns config.toml.
func (c Config) Render() ([]byte, error) {
	var out bytes.Buffer
	err := shape.Execute(&out, c)
	return out.Bytes(), err
}

// ChooseSnapshotter tries an overlay mount in the folder that will hold the snapshots: a volume on a filesystem that cannot
// carry one still works, with plain copies.
func ChooseSnapshotter(root string) string {
	dir, err := os.MkdirTemp(root, ".overlay-probe-*")
	if err != nil {
		return "native"
	}
	defer os.RemoveAll(dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(path(name), 0o700); err != nil {
			return "native"
		}
	}
	options := "lowerdir=" + path("lower") + ",upperdir=" + path("upper") + ",workdir=" + path("work")
	if err := unix.Mount("overlay", path("merged"), "overlay", 0, options); err != nil {
		return "native"
	}
	_ = unix.Unmount(path("merged"), unix.MNT_DETACH)
	return "overlayfs"
}
