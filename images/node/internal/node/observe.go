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

// observe keeps the board's entries that only the API knows. What the datastore remembers of an earlier boot does not count:
// a heartbeat or a container must be younger than this supervisor.
func (n *Node) observe(ctx context.Context) {
	go n.api.Watch(ctx, kubeapi.Query{Path: "/api/v1/nodes", Field: "metadata.name=" + n.NodeName}, func(objects []kubeapi.Object) {
		n.reportFault(status.Node, firstFault(objects, func(raw []byte) string { return nodeFault(raw, n.start) }))
	})
	go n.observeDNS(ctx)
	query := kubeapi.Query{Path: "/api/v1/namespaces/default/serviceaccounts", Field: "metadata.name=default"}
	go n.api.Watch(ctx, query, func(objects []kubeapi.Object) {
		n.reportFault(status.ServiceAccount, firstFault(objects, func([]byte) string { return "" }))
	})
}

// observeDNS asks the way that pods ask, through the Service: the proxy learns of the DNS pod later than we do, and until then
// a pod's question is refused. Nothing tells when that changes, so it is asked quickly until it works, and slowly after.
func (n *Node) observeDNS(ctx context.Context) {
	pods := make(chan string, 1)
	query := kubeapi.Query{Path: "/api/v1/namespaces/kube-system/pods", Label: "holdfast.dev/component=" + status.DNS}
	go n.api.Watch(ctx, query, func(objects []kubeapi.Object) {
		fault := firstFault(objects, func(raw []byte) string { return podFault(raw, n.start) })
		select {
		case <-pods: // Only the newest counts.
		default:
		}
		pods <- fault
	})
	pod, pause := "not there yet", time.Hour
	for {
		select {
		case <-ctx.Done():
			return
		case pod = <-pods:
		case <-time.After(pause):
		}
		fault := pod
		if fault == "" && n.askDNS(ctx) != nil {
			fault = "its Service does not answer"
		}
		n.reportFault(status.DNS, fault)
		switch {
		case pod != "":
			pause = time.Hour // The pod's next event comes first.
		case fault != "":
			pause = 50 * time.Millisecond
		default:
			pause = 10 * time.Second
		}
	}
}

func (n *Node) askDNS(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	server := net.JoinHostPort(n.DNSServiceIP().String(), "53")
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	_, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+settings.ClusterDomain+".")
	return err
}

// firstFault is empty when any of the objects has none, else the first one's.
func firstFault(objects []kubeapi.Object, fault func([]byte) string) string {
	first := "not there yet"
	for i, object := range objects {
		why := fault(object.Raw)
		if why == "" {
			return ""
		}
		if i == 0 {
			first = why
		}
	}
	return first
}

func (n *Node) reportFault(name, fault string) {
	if fault == "" {
		n.report(name, status.StateReady, "")
		return
	}
	n.report(name, "waiting", fault)
}

type condition struct {
	Type              string    `json:"type"`
	Status            string    `json:"status"`
	Message           string    `json:"message"`
	LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
}

func nodeFault(raw []byte, start time.Time) string {
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
		// The API keeps whole seconds.
		if c.LastHeartbeatTime.Before(start.Truncate(time.Second)) {
			return "no heartbeat since the node's start"
		}
		return ""
	}
	return "no status yet"
}

func podFault(raw []byte, start time.Time) string {
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
		return "not started since the node's start"
	case !container.Ready:
		return "not ready"
	}
	return ""
}
