// Package layout says where everything lives inside a node. It knows paths only: it reads and writes nothing.
//
// Two roots: what must survive is under State (one volume), what must not is under Run (a tmpfs). Keeping leases, sockets
// and rendered configuration on the tmpfs means that a crash cannot leave any of it behind.
package layout

import "path/filepath"

// Layout is the pair of roots; every path is derived from them so that tests can move both.
type Layout struct {
	State string
	Run   string
}

// Default is the layout inside the image.
func Default() Layout { return Layout{State: "/var/lib/holdfast", Run: "/run/holdfast"} }

// Etcd is the datastore's folder: the one that an upgrade copies.
func (l Layout) Etcd() string { return filepath.Join(l.State, "etcd") }

// PKI holds certificate authorities and leaf certificates.
func (l Layout) PKI() string { return filepath.Join(l.State, "pki") }

// Kubeconfigs holds one kubeconfig per component, and the administrator's.
func (l Layout) Kubeconfigs() string { return filepath.Join(l.State, "kubeconfig") }

// Kubeconfig is the kubeconfig of one user of the API.
func (l Layout) Kubeconfig(name string) string {
	return filepath.Join(l.Kubeconfigs(), name+".yaml")
}

// Containerd is containerd's persistent root: images, snapshots, container records.
func (l Layout) Containerd() string { return filepath.Join(l.State, "containerd") }

// Registries holds containerd's per-registry host files.
func (l Layout) Registries() string { return filepath.Join(l.State, "registries") }

// Kubelet is the kubelet's root: pod volumes and its checkpoints.
func (l Layout) Kubelet() string { return filepath.Join(l.State, "kubelet") }

// LocalPath holds the data of dynamically provisioned volumes.
func (l Layout) LocalPath() string { return filepath.Join(l.State, "local-path") }

// Logs holds one file per component, and the pods' logs.
func (l Layout) Logs() string { return filepath.Join(l.State, "logs") }

// PodLogs holds the logs of pods' containers.
func (l Layout) PodLogs() string { return filepath.Join(l.Logs(), "pods") }

// MachineID is the node's persistent machine id.
func (l Layout) MachineID() string { return filepath.Join(l.State, "machine-id") }

// Version says which versions opened the datastore last.
func (l Layout) Version() string { return filepath.Join(l.State, "version.json") }

// Config is a rendered configuration file: always written anew at boot.
func (l Layout) Config(name string) string { return filepath.Join(l.Run, "config", name) }

// DNS is the folder that the DNS pod mounts.
func (l Layout) DNS() string { return filepath.Join(l.Run, "dns") }

// CNIConfig is where containerd looks for the pod network's configuration.
func (l Layout) CNIConfig() string { return filepath.Join(l.Run, "cni") }

// CNILeases is the pod addresses in use: on the tmpfs, so that leaked ones vanish at boot.
func (l Layout) CNILeases() string { return filepath.Join(l.Run, "cni-leases") }

// StatusSocket is where `wait` and `health` ask.
func (l Layout) StatusSocket() string { return filepath.Join(l.Run, "status.sock") }

// ContainerdSocket is containerd's own, at the place where `ctr` looks by default.
func (l Layout) ContainerdSocket() string { return "/run/containerd/containerd.sock" }

// Bin is put first in the components' PATH, to choose between flavours of a tool at boot.
func (l Layout) Bin() string { return filepath.Join(l.Run, "bin") }

// BakedImages is the folder of image archives that ship with the node.
func (l Layout) BakedImages() string { return "/usr/share/holdfast/images" }

// StateDirs lists the folders under State that must exist before anything starts.
func (l Layout) StateDirs() []string {
	return []string{l.Etcd(), l.PKI(), l.Kubeconfigs(), l.Containerd(), l.Registries(), l.Kubelet(), l.LocalPath(), l.Logs(), l.PodLogs()}
}

// RunDirs lists the folders under Run that must exist before anything starts.
func (l Layout) RunDirs() []string {
	return []string{filepath.Join(l.Run, "config"), l.DNS(), l.CNIConfig(), l.CNILeases(), l.Bin()}
}
