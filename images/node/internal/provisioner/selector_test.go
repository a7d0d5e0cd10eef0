package provisioner

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

func selector(t *testing.T, pvc *v1.PersistentVolumeClaim, nodes ...string) nodeSelector {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range nodes {
		if err := index.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, provisioner := range map[string]string{"local-path": Name, "other": "example.org/other"} {
		if err := classes.Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}); err != nil {
			t.Fatal(err)
		}
	}
	return nodeSelector{client: fake.NewClientset(pvc), node: "n1", nodes: corelisters.NewNodeLister(index), classes: storagelisters.NewStorageClassLister(classes)}
}

func pending(class string) *v1.PersistentVolumeClaim {
	pvc := request(v1.ReadWriteOnce).PVC.DeepCopy()
	pvc.UID, pvc.Spec.StorageClassName = "u1", &class
	return pvc
}

func selectedBy(t *testing.T, s nodeSelector, pvc *v1.PersistentVolumeClaim) string {
	t.Helper()
	if s.shouldSelect(pvc) {
		s.selectNode(context.Background(), pvc)
	}
	live, err := s.client.CoreV1().PersistentVolumeClaims(pvc.Namespace).Get(context.Background(), pvc.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return live.Annotations[selectedNode]
}

func TestTheOnlyNodeIsSelectedForANewPVC(t *testing.T) {
	pvc := pending("local-path")
	if got := selectedBy(t, selector(t, pvc, "n1"), pvc); got != "n1" {
		t.Errorf("selected %q", got)
	}
}

func TestTheSchedulerSelectsInAllOtherCases(t *testing.T) {
	bound, elsewhere, deleted := pending("local-path"), pending("local-path"), pending("local-path")
	bound.Spec.VolumeName = "pvc-1"
	elsewhere.Annotations = map[string]string{selectedNode: "n2"}
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		pvc   *v1.PersistentVolumeClaim
		nodes []string
		want  string
	}{
		"two nodes":        {pending("local-path"), []string{"n1", "n2"}, ""},
		"another node":     {pending("local-path"), []string{"n2"}, ""},
		"another class":    {pending("other"), []string{"n1"}, ""},
		"unknown class":    {pending("missing"), []string{"n1"}, ""},
		"bound":            {bound, []string{"n1"}, ""},
		"being deleted":    {deleted, []string{"n1"}, ""},
		"already selected": {elsewhere, []string{"n1"}, "n2"},
	} {
		if got := selectedBy(t, selector(t, c.pvc, c.nodes...), c.pvc); got != c.want {
			t.Errorf("%s: selected %q", name, got)
		}
	}
}
