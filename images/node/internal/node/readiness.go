package node

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"holdfast.dev/node/internal/kubeapi"
	"holdfast.dev/node/internal/settings"
	"holdfast.dev/node/internal/status"
)

// watchReadiness reports the readiness of components that have no process of the supervisor. The datastore still contains the
// status of an earlier boot, so a heartbeat or a container must be newer than the start of this supervisor.
func (n *Node) watchReadiness(ctx context.Context) {
	go n.api.Watch(ctx, kubeapi.Query{Path: "/api/v1/nodes", FieldSelector: "metadata.name=" + n.NodeName}, func(objects []kubeapi.Object) {
		n.reportReadiness(status.Node, notReadyReason(objects, func(raw []byte) string { return nodeNotReadyReason(raw, n.start) }))
	})
	go n.watchDNS(ctx)
	query := kubeapi.Query{Path: "/api/v1/namespaces/default/serviceaccounts", FieldSelector: "metadata.name=default"}
	go n.api.Watch(ctx, query, func(objects []kubeapi.Object) {
		n.reportReadiness(status.ServiceAccount, notReadyReason(objects, func([]byte) string { return "" }))
	})
}

// watchDNS sends queries through the Service, as pods do: kube-proxy adds the endpoint only after the pod is ready, and rejects
// queries until then. No event reports that change, so watchDNS polls, frequently until a query succeeds and rarely afterwards.
func (n *Node) watchDNS(ctx context.Context) {
	pods := make(chan string, 1)
	query := kubeapi.Query{Path: "/api/v1/namespaces/kube-system/pods", LabelSelector: "holdfast.dev/component=" + status.DNS}
	go n.api.Watch(ctx, query, func(objects []kubeapi.Object) {
		reason := notReadyReason(objects, func(raw []byte) string { return podNotReadyReason(raw, n.start) })
		select {
		case <-pods: // Drop an older state.
		default:
		}
		pods <- reason
	})
	podReason, delay := notCreated, time.Hour
	for {
		select {
		case <-ctx.Done():
			return
		case podReason = <-pods:
		case <-time.After(delay):
		}
		reason := podReason
		if reason == "" && n.checkDNS(ctx) != nil {
			reason = "the Service does not answer"
		}
		n.reportReadiness(status.DNS, reason)
		switch {
		case podReason != "":
			delay = time.Hour // The next event of the pod comes earlier.
		case reason != "":
			delay = 50 * time.Millisecond
		default:
			delay = 10 * time.Second
		}
	}
}

func (n *Node) checkDNS(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	server := net.JoinHostPort(n.DNSServiceIP().String(), "53")
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	_, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+settings.ClusterDomain+".")
	return err
}

// notReadyReason returns "" if one of the objects is ready, else the reason of the first object.
func notReadyReason(objects []kubeapi.Object, check func([]byte) string) string {
	first := notCreated
	for i, object := range objects {
		reason := check(object.Raw)
		if reason == "" {
			return ""
		}
		if i == 0 {
			first = reason
		}
	}
	return first
}

func (n *Node) reportReadiness(name, reason string) {
	if reason == "" {
		n.report(name, status.StateReady, "")
		return
	}
	n.report(name, "waiting", reason)
}

// notCreated is the reason of an object that does not exist yet.
const notCreated = "not created yet"

type condition struct {
	Type              string    `json:"type"`
	Status            string    `json:"status"`
	Message           string    `json:"message"`
	LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
}

func nodeNotReadyReason(raw []byte, start time.Time) string {
	var node struct {
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &node); err != nil {
		return err.Error()
	}
	for _, c := range node.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}
		if c.Status != "True" {
			return c.Message
		}
		// The API server stores times in whole seconds.
		if c.LastHeartbeatTime.Before(start.Truncate(time.Second)) {
			return "no heartbeat since the start of the node"
		}
		return ""
	}
	return "no Ready condition"
}

func podNotReadyReason(raw []byte, start time.Time) string {
	var pod struct {
		Metadata struct {
			DeletionTimestamp string `json:"deletionTimestamp"`
		} `json:"metadata"`
		Status struct {
			Phase             string `json:"phase"`
			ContainerStatuses []struct {
				Ready bool `json:"ready"`
				State struct {
					Running *struct {
						StartedAt time.Time `json:"startedAt"`
					} `json:"running"`
					Waiting *struct {
						Reason  string `json:"reason"`
						Message string `json:"message"`
					} `json:"waiting"`
				} `json:"state"`
			} `json:"containerStatuses"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &pod); err != nil {
		return err.Error()
	}
	if pod.Metadata.DeletionTimestamp != "" {
		return "terminating"
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return "pod is " + pod.Status.Phase
	}
	container := pod.Status.ContainerStatuses[0]
	switch {
	case container.State.Waiting != nil:
		return container.State.Waiting.Reason + " " + container.State.Waiting.Message
	case container.State.Running == nil || container.State.Running.StartedAt.Before(start.Truncate(time.Second)):
		return "container not started since the start of the node"
	case !container.Ready:
		return "container not ready"
	}
	return ""
}
