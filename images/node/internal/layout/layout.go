// Package layout defines the paths of all files inside a node. It does not access files.
//
// There are two roots: State is a volume and persists, Run is a tmpfs. IP address leases, sockets and rendered configuration
// are on the tmpfs, so that they cannot become stale after a crash.
package layout

import "path/filepath"

// Layout contains the two roots. Tests set them to temporary directories.
type Layout struct {
	State string
	Run   string
}

// Default returns the layout inside the node image.
func Default() Layout { return Layout{State: "/var/lib/holdfast", Run: "/run/holdfast"} }

// Etcd is the directory of the datastore; an upgrade copies it.
func (l Layout) Etcd() string { return filepath.Join(l.State, "etcd") }

// PKI is the directory of CAs and leaf certificates.
func (l Layout) PKI() string { return filepath.Join(l.State, "pki") }

// Kubeconfigs is the directory of the kubeconfigs, one for each component and one for the administrator.
func (l Layout) Kubeconfigs() string { return filepath.Join(l.State, "kubeconfig") }

// Kubeconfig is the kubeconfig of one component or of the administrator.
func (l Layout) Kubeconfig(name string) string {
	return filepath.Join(l.Kubeconfigs(), name+".yaml")
}

// Containerd is the persistent directory of containerd: images, snapshots and container metadata.
func (l Layout) Containerd() string { return filepath.Join(l.State, "containerd") }

// Registries is the directory of containerd's host configuration for each registry.
func (l Layout) Registries() string { return filepath.Join(l.State, "registries") }

// Kubelet is the root directory of the kubelet: pod volumes and checkpoints.
func (l Layout) Kubelet() string { return filepath.Join(l.State, "kubelet") }

// LocalPath is the parent directory of dynamically provisioned volumes.
func (l Layout) LocalPath() string { return filepath.Join(l.State, "local-path") }

// Logs is the directory of the component logs, one file each.
func (l Layout) Logs() string { return filepath.Join(l.State, "logs") }

// PodLogs is the directory of the container logs of all pods.
func (l Layout) PodLogs() string { return filepath.Join(l.Logs(), "pods") }

// MachineID is the file with the persistent machine ID of the node.
func (l Layout) MachineID() string { return filepath.Join(l.State, "machine-id") }

// Version is the file with the versions of the node that last opened the datastore.
func (l Layout) Version() string { return filepath.Join(l.State, "version.json") }

// Config is a configuration file, rendered at each boot.
func (l Layout) Config(name string) string { return filepath.Join(l.Run, "config", name) }

// DNS is the directory that the CoreDNS pod mounts.
func (l Layout) DNS() string { return filepath.Join(l.Run, "dns") }

// CNIConfig is the directory of the CNI configuration that containerd reads.
func (l Layout) CNIConfig() string { return filepath.Join(l.Run, "cni") }

// CNILeases is the directory of the allocated pod addresses. It is on the tmpfs, so that a boot frees leaked addresses.
func (l Layout) CNILeases() string { return filepath.Join(l.Run, "cni-leases") }

// StatusSocket is the Unix socket on which `wait` and `health` read the status.
func (l Layout) StatusSocket() string { return filepath.Join(l.Run, "status.sock") }

// ContainerdSocket is the socket of containerd, at the default path of `ctr`.
func (l Layout) ContainerdSocket() string { return "/run/containerd/containerd.sock" }

// Bin is the first directory in the components' PATH. Links in it select the variant of a tool at boot.
func (l Layout) Bin() string { return filepath.Join(l.Run, "bin") }

// EmbeddedImages is the directory of the archives of embedded images.
func (l Layout) EmbeddedImages() string { return "/usr/share/holdfast/images" }

// StateDirs returns the directories under State that must exist before a component starts.
func (l Layout) StateDirs() []string {
	return []string{l.Etcd(), l.PKI(), l.Kubeconfigs(), l.Containerd(), l.Registries(), l.Kubelet(), l.LocalPath(), l.Logs(), l.PodLogs()}
}

// RunDirs returns the directories under Run that must exist before a component starts.
func (l Layout) RunDirs() []string {
	return []string{filepath.Join(l.Run, "config"), l.DNS(), l.CNIConfig(), l.CNILeases(), l.Bin()}
}
