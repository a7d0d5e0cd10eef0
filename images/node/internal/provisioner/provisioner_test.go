package provisioner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

func request(modes ...v1.PersistentVolumeAccessMode) controller.ProvisionOptions {
	reclaim := v1.PersistentVolumeReclaimDelete
	pvc := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "workspace-a"}}
	pvc.Spec.AccessModes = modes
	pvc.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	return controller.ProvisionOptions{PVName: "pvc-1", PVC: pvc, StorageClass: &storagev1.StorageClass{ReclaimPolicy: &reclaim}}
}

func provision(t *testing.T, d Directories) *v1.PersistentVolume {
	t.Helper()
	pv, state, err := d.Provision(context.Background(), request(v1.ReadWriteOnce))
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	return pv
}

func TestProvisionedVolumeIsADirectoryOfThisNode(t *testing.T) {
	d := Directories{Node: "n1", Parent: t.TempDir()}
	pv := provision(t, d)
	path := filepath.Join(d.Parent, "pvc-1_default_workspace-a")
	if pv.Name != "pvc-1" || pv.Spec.HostPath.Path != path || pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
		t.Errorf("%+v", pv)
	}
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.String() != "2Gi" {
		t.Errorf("capacity %s", size.String())
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v %v", info, err)
	}
	if !d.ShouldDelete(context.Background(), pv) {
		t.Error("the node does not delete its own volume")
	}
	if (Directories{Node: "n2", Parent: d.Parent}).ShouldDelete(context.Background(), pv) {
		t.Error("another node deletes the volume")
	}
}

func TestRepeatedProvisionKeepsFiles(t *testing.T) {
	d := Directories{Node: "n1", Parent: t.TempDir()}
	file := filepath.Join(provision(t, d).Spec.HostPath.Path, "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	provision(t, d)
	if data, err := os.ReadFile(file); err != nil || string(data) != "data" {
		t.Errorf("%q %v", data, err)
	}
}

func TestUnsupportedPVCsAreRefused(t *testing.T) {
	d := Directories{Node: "n1", Parent: t.TempDir()}
	shared, selected, huge := request(v1.ReadWriteMany), request(v1.ReadWriteOnce), request(v1.ReadWriteOnce)
	huge.PVC.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("1Ei")
	selected.PVC.Spec.Selector = &metav1.LabelSelector{}
	for want, options := range map[string]controller.ProvisionOptions{"ReadWriteMany": shared, "selector": selected, "the disk has": huge} {
		if _, _, err := d.Provision(context.Background(), options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if entries, _ := os.ReadDir(d.Parent); len(entries) != 0 {
		t.Errorf("directories exist: %v", entries)
	}
}

func TestNodeProvisionsOnlyPVCsThatTheSchedulerPlacedThere(t *testing.T) {
	d := Directories{Node: "n1"}
	pvc := request(v1.ReadWriteOnce).PVC
	for node, want := range map[string]bool{"": false, "n1": true, "n2": false} {
		pvc.Annotations = map[string]string{selectedNode: node}
		if d.ShouldProvision(context.Background(), pvc) != want {
			t.Errorf("node %q: want %v", node, want)
		}
	}
}

func TestDeleteRemovesTheDirectoryAndDoesNotFollowLinks(t *testing.T) {
	d := Directories{Node: "n1", Parent: t.TempDir()}
	outside := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pv := provision(t, d)
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(pv.Spec.HostPath.Path, "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Delete(context.Background(), pv); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(pv.Spec.HostPath.Path); !os.IsNotExist(err) {
		t.Errorf("the directory exists: %v", err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

func TestDeleteRemovesNothingOutsideTheParentDirectory(t *testing.T) {
	root := t.TempDir()
	d := Directories{Node: "n1", Parent: filepath.Join(root, "local-path")}
	etcd := filepath.Join(root, "etcd")
	for _, path := range []string{d.Parent, etcd, filepath.Join(d.Parent, "pvc-1", "sub")} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"", "/", root, etcd, d.Parent, d.Parent + "/", d.Parent + "/../etcd", d.Parent + "/pvc-1/sub", d.Parent + "/pvc-1/..", "local-path/pvc-1"} {
		pv := &v1.PersistentVolume{}
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: path}
		if err := d.Delete(context.Background(), pv); err == nil {
			t.Errorf("accepted %q", path)
		}
		pv.Spec.HostPath, pv.Spec.Local = nil, &v1.LocalVolumeSource{Path: path}
		if err := d.Delete(context.Background(), pv); err == nil {
			t.Errorf("accepted local volume %q", path)
		}
	}
	for _, path := range []string{etcd, filepath.Join(d.Parent, "pvc-1", "sub")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
