// Package containerd renders the configuration of containerd and imports the embedded images.
package containerd

import (
	"bytes"
	"os"
	"path/filepath"
	"text/template"

	"golang.org/x/sys/unix"
)

// Names of images that are embedded in the node image.
const (
	PauseImage = "holdfast.dev/pause:1"
	DNSImage   = "holdfast.dev/coredns:1.12.4"
)

// Config contains the values of the configuration file that depend on the node.
type Config struct {
	Root        string
	State       string
	Socket      string
	CNIConfig   string
	Registries  string
	Snapshotter string
}

var configTemplate = template.Must(template.New("containerd").Parse(`version = 2
root = "{{.Root}}"
state = "{{.State}}"
# These plugins are not usable on the node and would only log messages at each start.
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  # Without CAP_SYS_RESOURCE, the node cannot lower OOM scores, and pods that need a lower score would not start.
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

// Render returns the content of config.toml.
func (c Config) Render() ([]byte, error) {
	var out bytes.Buffer
	err := configTemplate.Execute(&out, c)
	return out.Bytes(), err
}

// ChooseSnapshotter returns "overlayfs" if an overlay mount works in the directory of the snapshots, else "native". Some
// filesystems do not support overlay mounts.
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
