package node

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"holdfast.dev/node/internal/atomicfile"
	"holdfast.dev/node/internal/component"
	"holdfast.dev/node/internal/containerd"
	"holdfast.dev/node/internal/kubeapi"
	"holdfast.dev/node/internal/manifests"
	"holdfast.dev/node/internal/release"
	"holdfast.dev/node/internal/status"
	"holdfast.dev/node/internal/supervisor"
)

// Names of the tasks, which run once per boot. `holdfast-node wait` prints them.
const (
	taskStaleEndpoints = "stale-endpoints"
	taskAPIAnswers     = "api-answers"
	taskDefaultRoles   = "default-roles"
	taskPauseImage     = "pause-image"
	taskImages         = "images"
	taskManifests      = "manifests"
	taskVersion        = "version"
)

// units returns all processes and tasks with their start order. The kubelet needs both chains: etcd and API server, and
// containerd and pause image.
func (n *Node) units() []supervisor.Unit {
	api := component.APIServer
	return []supervisor.Unit{
		n.processUnit(component.Etcd, n.etcdReady, nil),
		n.processUnit(component.Containerd, n.cri.Ready, nil),
		{Name: taskStaleEndpoints, Needs: []string{component.Etcd}, Task: n.deleteStaleEndpoints},
		n.processUnit(api, n.apiReady, []string{taskStaleEndpoints}),
		{Name: taskPauseImage, Needs: []string{component.Containerd}, Task: n.importImages(containerd.Archive.IsPause)},
		// The API server creates all default RBAC roles before it reports ready. The kubelet needs none of them, and the other
		// components need only some. Waiting for those, and not for readiness, shortens the boot.
		{Name: taskAPIAnswers, Needs: []string{taskStaleEndpoints}, Task: n.waitForAPI},
		{Name: taskDefaultRoles, Needs: []string{taskAPIAnswers}, Task: n.waitForRoles},
		n.processUnit(component.Kubelet, httpHealth(component.KubeletURL+"/healthz"), []string{taskAPIAnswers, taskPauseImage}),
		n.processUnit(component.ControllerManager, n.httpsHealth(component.ControllerManagerURL), []string{taskDefaultRoles}),
		n.processUnit(component.Scheduler, n.httpsHealth(component.SchedulerURL), []string{taskDefaultRoles}),
		n.processUnit(component.Proxy, httpHealth(component.ProxyURL+"/livez"), []string{taskDefaultRoles}),
		n.processUnit(component.Provisioner, httpHealth(component.ProvisionerURL), []string{taskManifests}),
		{Name: taskImages, Needs: []string{taskPauseImage}, Task: n.importImages(func(containerd.Archive) bool { return true })},
		// The images must exist first: the kubelet retries a pod whose image is missing only after ten seconds.
		{Name: taskManifests, Needs: []string{taskDefaultRoles, taskImages}, Task: n.applyManifests},
		{Name: taskVersion, Needs: []string{api}, Task: n.writeVersion},
	}
}

// stopStages returns the stop order. The kubelet stops before the pods, because it would restart them. Clients stop before the
// API server, and the API server before etcd, so that no write fails.
func (n *Node) stopStages() []supervisor.Stage {
	return []supervisor.Stage{
		{Units: []string{component.Kubelet}, AfterStop: n.stopPods},
		{Units: []string{component.ControllerManager, component.Scheduler, component.Proxy, component.Provisioner, component.Containerd}},
		{Units: []string{component.APIServer}},
		{Units: []string{component.Etcd}},
	}
}

func (n *Node) processUnit(name string, ready func(context.Context) error, needs []string) supervisor.Unit {
	unit := supervisor.Unit{Name: name, Needs: needs, Ready: ready, NewCommand: func() (supervisor.Command, error) {
		return supervisor.Command{Args: n.Args(name), Env: n.environment()}, nil
	}}
	if name == component.Etcd {
		// If etcd cannot open its data, retries do not help.
		unit.MaxFailedStarts = 4
		unit.GracePeriod = 2 * time.Second
	}
	return unit
}

func (n *Node) environment() []string {
	return []string{
		"PATH=" + n.Bin() + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"TMPDIR=" + os.TempDir(),
	}
}

func (n *Node) etcdReady(ctx context.Context) error { return n.etcd.Check(ctx, "/readyz") }
func (n *Node) apiReady(ctx context.Context) error  { return n.api.Check(ctx, "/readyz") }

// waitForAPI returns when the API server answers requests; it may not be ready yet.
func (n *Node) waitForAPI(ctx context.Context) error {
	return poll(ctx, func() error { return n.api.Check(ctx, "/livez/ping") })
}

// waitForRoles returns when the role bindings of the components exist. Without them, the components get 403 errors and back off.
func (n *Node) waitForRoles(ctx context.Context) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for _, path := range []string{
		"clusterrolebindings/system:kube-controller-manager",
		"clusterrolebindings/system:kube-scheduler",
		"clusterrolebindings/system:volume-scheduler",
		"clusterrolebindings/system:node-proxier",
		"clusterrolebindings/system:basic-user",
		"namespaces/kube-system/rolebindings/system::extension-apiserver-authentication-reader",
	} {
		if err := poll(ctx, func() error { return n.api.Check(ctx, rbac+path) }); err != nil {
			return err
		}
	}
	return nil
}

// poll calls check until it returns nil or the context ends.
func poll(ctx context.Context, check func() error) error {
	for check() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (n *Node) httpsHealth(base string) func(context.Context) error {
	client := kubeapi.New(base, filepath.Join(n.PKI(), "ca.crt"), filepath.Join(n.PKI(), "admin.pem"))
	return func(ctx context.Context) error { return client.Check(ctx, "/healthz") }
}

func httpHealth(url string) func(context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("HTTP %d", response.StatusCode)
		}
		return nil
	}
}

// writeVersion records the versions on the volume after this node has opened the datastore. The holdfast command reads them
// before an upgrade, even if the container no longer exists.
func (n *Node) writeVersion(context.Context) error {
	_, err := atomicfile.WriteIfChanged(n.Version(), release.JSON(), 0o644)
	return err
}

// deleteStaleEndpoints deletes the API server endpoints of an earlier boot. After a change of the container's address, the
// kubernetes Service would route to the old address until its lease in etcd expires.
func (n *Node) deleteStaleEndpoints(ctx context.Context) error {
	encode := base64.StdEncoding.EncodeToString
	const first, end = "/registry/masterleases/", "/registry/masterleases0" // '0' is the character after '/'.
	body := fmt.Sprintf(`{"key":%q,"range_end":%q}`, encode([]byte(first)), encode([]byte(end)))
	_, err := n.etcd.Do(ctx, http.MethodPost, "/v3/kv/deleterange", "application/json", []byte(body))
	return err
}

func (n *Node) importImages(match func(containerd.Archive) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		archives, err := containerd.FindArchives(n.EmbeddedImages())
		if err != nil {
			return err
		}
		importer := containerd.Importer{Store: n.cri, Run: n.reaper.Output, Socket: n.ContainerdSocket()}
		for _, archive := range archives {
			if !match(archive) {
				continue
			}
			imported, err := importer.Ensure(ctx, archive)
			if err != nil {
				return err
			}
			if imported {
				n.logf("image %s: imported", archive.Tags[0])
			}
		}
		return nil
	}
}

func (n *Node) applyManifests(ctx context.Context) error {
	objects, err := manifests.Render(manifests.Values{
		DNSServiceIP: n.DNSServiceIP().String(), DNSDir: n.DNS(), DNSImage: containerd.DNSImage,
	})
	if err != nil {
		return err
	}
	if err := manifests.Apply(ctx, n.api, objects); err != nil {
		return err
	}
	if err := manifests.Delete(ctx, n.api, manifests.Retired()); err != nil {
		return err
	}
	n.report(status.StorageClass, status.StateReady, "")
	return nil
}
