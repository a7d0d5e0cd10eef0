// Package provisioner creates and deletes the volumes of the node's storage class: directories below one parent directory.
// It runs on the node, so a volume costs one mkdir and not a helper pod.
package provisioner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

// Name is the provisioner of the storage class. It is the name of Rancher's local-path-provisioner, which earlier nodes ran:
// the field is immutable, and volumes refer to it.
const Name = "rancher.io/local-path"

// Annotations of the scheduler and of the volumes.
const (
	selectedNode   = "volume.kubernetes.io/selected-node"
	nodeAnnotation = "local.path.provisioner/selected-node"
)

// Directories provisions volumes as directories on one node.
type Directories struct {
	Node   string
	Parent string
}

// ShouldProvision reports whether the scheduler chose this node for a PVC.
func (d Directories) ShouldProvision(_ context.Context, pvc *v1.PersistentVolumeClaim) bool {
	return pvc.Annotations[selectedNode] == d.Node
}

// ShouldDelete reports whether a volume is on this node.
func (d Directories) ShouldDelete(_ context.Context, pv *v1.PersistentVolume) bool {
	affinity := pv.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return false
	}
	for _, term := range affinity.Required.NodeSelectorTerms {
		for _, match := range term.MatchExpressions {
			if match.Key == v1.LabelHostname && len(match.Values) == 1 && match.Values[0] == d.Node {
				return true
			}
		}
	}
	return false
}

// Provision creates the directory of a PVC. It is idempotent: the controller calls it again after a crash.
func (d Directories) Provision(_ context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	pvc := options.PVC
	if pvc.Spec.Selector != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("PVC %s/%s: a selector is not supported", pvc.Namespace, pvc.Name)
	}
	for _, mode := range pvc.Spec.AccessModes {
		if mode != v1.ReadWriteOnce && mode != v1.ReadWriteOncePod {
			return nil, controller.ProvisioningFinished, fmt.Errorf("PVC %s/%s: access mode %s is not supported", pvc.Namespace, pvc.Name, mode)
		}
	}
	if err := d.checkSize(pvc); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	path := filepath.Join(d.Parent, strings.Join([]string{options.PVName, pvc.Namespace, pvc.Name}, "_"))
	if err := createDirectory(path); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return d.volume(options, path), controller.ProvisioningFinished, nil
}

// checkSize returns an error for a PVC that is larger than the disk. Directories have no size of their own, so a PVC that
// fits is not limited to its size.
func (d Directories) checkSize(pvc *v1.PersistentVolumeClaim) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(d.Parent, &disk); err != nil {
		return err
	}
	size, total := pvc.Spec.Resources.Requests[v1.ResourceStorage], int64(disk.Blocks)*disk.Bsize
	if size.Value() > total {
		return fmt.Errorf("PVC %s/%s: requests %s, but the disk has %d GiB", pvc.Namespace, pvc.Name, size.String(), total>>30)
	}
	return nil
}

// createDirectory returns when the directory is on the disk: the API server stores the PV durably, and a PV must not outlive
// its directory in a power cut.
func createDirectory(path string) error {
	if err := os.Mkdir(path, 0o777); err != nil && !os.IsExist(err) {
		return err
	}
	// The umask applies to Mkdir. Pods of any user write here; the parent directory keeps others out.
	if err := os.Chmod(path, 0o777); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

func (d Directories) volume(options controller.ProvisionOptions, path string) *v1.PersistentVolume {
	mode, kind := v1.PersistentVolumeFilesystem, v1.HostPathDirectoryOrCreate
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName, Annotations: map[string]string{nodeAnnotation: d.Node}},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			VolumeMode:                    &mode,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: options.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{d.Node}}},
			}}}},
		},
	}
}

// Delete removes the directory of a volume. It is idempotent.
func (d Directories) Delete(_ context.Context, pv *v1.PersistentVolume) error {
	var path string
	switch {
	case pv.Spec.HostPath != nil:
		path = pv.Spec.HostPath.Path
	case pv.Spec.Local != nil:
		path = pv.Spec.Local.Path
	}
	// Users with access to the API can create PVs that name this provisioner: only direct children of the parent directory
	// are volumes, and nothing else on the node may be removed.
	if clean := filepath.Clean(path); path == "" || filepath.Dir(clean) != d.Parent || clean == d.Parent {
		return fmt.Errorf("PV %s: %q is not a directory below %s", pv.Name, path, d.Parent)
	}
	// RemoveAll does not follow symbolic links, which code in a sandbox can create.
	return os.RemoveAll(filepath.Clean(path))
}
