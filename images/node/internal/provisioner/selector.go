package provisioner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// nodeSelector selects the node of new PVCs in a cluster with one node. The scheduler would select the same node, but only
// for a PVC that a pod uses, and it then waits a second before it checks whether the volume exists.
type nodeSelector struct {
	client  kubernetes.Interface
	node    string
	nodes   corelisters.NodeLister
	classes storagelisters.StorageClassLister
}

func (s nodeSelector) handler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		// In a burst, a PVC must not wait for the requests of those before it; the client limits their rate.
		if pvc, ok := object.(*v1.PersistentVolumeClaim); ok && s.shouldSelect(pvc) {
			go s.selectNode(ctx, pvc)
		}
	}}
}

// shouldSelect reports whether a PVC needs a volume of this provisioner and only this node can have it.
func (s nodeSelector) shouldSelect(pvc *v1.PersistentVolumeClaim) bool {
	if pvc.Spec.VolumeName != "" || pvc.Annotations[selectedNode] != "" || pvc.Spec.StorageClassName == nil || pvc.DeletionTimestamp != nil {
		return false
	}
	class, err := s.classes.Get(*pvc.Spec.StorageClassName)
	if err != nil || class.Provisioner != Name {
		return false
	}
	nodes, err := s.nodes.List(labels.Everything())
	return err == nil && len(nodes) == 1 && nodes[0].Name == s.node
}

func (s nodeSelector) selectNode(ctx context.Context, pvc *v1.PersistentVolumeClaim) {
	// The uid is a precondition: a PVC that was deleted and created again is another one, and has its own event.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pvc.UID, selectedNode, s.node)
	_, err := s.client.CoreV1().PersistentVolumeClaims(pvc.Namespace).Patch(ctx, pvc.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	// An error costs a second and no more: the scheduler selects the node later.
	if err != nil && !errors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Cannot select the node of a PVC", "PVC", klog.KObj(pvc))
	}
}
