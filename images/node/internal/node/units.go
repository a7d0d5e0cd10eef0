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

// Tasks: things to get done once per boot.
const (
	forgetLeases = "stale-endpoints"
	apiAnswers   = "api-answers"
	defaultRoles = "default-roles"
	pauseImage   = "pause-image"
	bakedImages  = "images"
	applyObjects = "manifests"
	leaveVersion = "version"
)

// units is the whole start-up order. Two chains, datastore → API and runtime → images, meet at the kubelet.
func (n *Node) units() []supervisor.Unit {
	api := component.APIServer
	return []supervisor.Unit{
		n.process(component.Etcd, n.etcdReady, nil),
		n.process(component.Containerd, n.cri.Ready, nil),
		{Name: forgetLeases, Needs: []string{component.Etcd}, Do: n.forgetEndpoints},
		n.process(api, n.apiReady, []string{forgetLeases}),
		{Name: pauseImage, Needs: []string{component.Containerd}, Do: n.importImages(containerd.Archive.IsPause)},
		// Before it calls itself ready, the API server goes through all its default roles. The kubelet needs none of them, the
		// others need theirs: each starts as soon as it can work, while the API server is still busy.
		{Name: apiAnswers, Needs: []string{forgetLeases}, Do: n.awaitAPI},
		{Name: defaultRoles, Needs: []string{apiAnswers}, Do: n.awaitRoles},
		n.process(component.Kubelet, plainHealth(component.KubeletURL+"/healthz"), []string{apiAnswers, pauseImage}),
		n.process(component.ControllerManager, n.loopbackHealth(component.ControllerManagerURL), []string{defaultRoles}),
		n.process(component.Scheduler, n.loopbackHealth(component.SchedulerURL), []string{defaultRoles}),
		n.process(component.Proxy, plainHealth(component.ProxyURL+"/livez"), []string{defaultRoles}),
		n.process(component.Provisioner, plainHealth(component.ProvisionerURL), []string{applyObjects}),
		{Name: bakedImages, Needs: []string{pauseImage}, Do: n.importImages(func(containerd.Archive) bool { return true })},
		// The pods' images must be there first: a pod that finds none is put off for ten seconds.
		{Name: applyObjects, Needs: []string{defaultRoles, bakedImages}, Do: n.applyManifests},
		{Name: leaveVersion, Needs: []string{api}, Do: n.leaveVersion},
	}
}

// stages is the order of the stop: the kubelet before the pods, which it would restart, and whoever writes before whoever
// stores.
func (n *Node) stages() []supervisor.Stage {
	return []supervisor.Stage{
		{Units: []string{component.Kubelet}, Then: n.stopPods},
		{Units: []string{component.ControllerManager, component.Scheduler, component.Proxy, component.Provisioner, component.Containerd}},
		{Units: []string{component.APIServer}},
		{Units: []string{component.Etcd}},
	}
}

func (n *Node) process(name string, ready func(context.Context) error, needs []string) supervisor.Unit {
	unit := supervisor.Unit{Name: name, Needs: needs, Ready: ready, Start: func() (supervisor.Command, error) {
		return supervisor.Command{Args: n.Args(name), Env: n.environment()}, nil
	}}
	if name == component.Etcd {
		// A datastore that cannot be opened does not get better by trying.
		unit.MaxFailedStarts = 4
		unit.Grace = 2 * time.Second
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

func (n *Node) etcdReady(ctx context.Context) error { return n.etcd.Healthy(ctx, "/readyz") }
func (n *Node) apiReady(ctx context.Context) error  { return n.api.Healthy(ctx, "/readyz") }

// awaitAPI returns when the API server answers at all.
func (n *Node) awaitAPI(ctx context.Context) error {
	return poll(ctx, func() error { return n.api.Healthy(ctx, "/livez/ping") })
}

// awaitRoles returns when the rights are there without which the components would start by being refused, and then wait.
func (n *Node) awaitRoles(ctx context.Context) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for _, path := range []string{
		"clusterrolebindings/system:kube-controller-manager",
		"clusterrolebindings/system:kube-scheduler",
		"clusterrolebindings/system:volume-scheduler",
		"clusterrolebindings/system:node-proxier",
		"clusterrolebindings/system:basic-user",
		"namespaces/kube-system/rolebindings/system::extension-apiserver-authentication-reader",
	} {
		if err := poll(ctx, func() error { return n.api.Healthy(ctx, rbac+path) }); err != nil {
			return err
		}
	}
	return nil
}

// poll asks until the answer is good or the context ends.
func poll(ctx context.Context, ask func() error) error {
	for ask() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (n *Node) loopbackHealth(base string) func(context.Context) error {
	client := kubeapi.New(base, filepath.Join(n.PKI(), "ca.crt"), filepath.Join(n.PKI(), "admin.pem"))
	return func(ctx context.Context) error { return client.Healthy(ctx, "/healthz") }
}

func plainHealth(url string) func(context.Context) error {
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

// leaveVersion says on the volume whose data it is, once this version has opened it: with the container gone nobody else could tell.
func (n *Node) leaveVersion(context.Context) error {
	_, err := atomicfile.WriteIfChanged(n.Version(), release.JSON(), 0o644)
	return err
}

// forgetEndpoints removes the API server addresses that an earlier boot announced: after a change of the container's
// address, pods would be sent to the old one until the datastore lets it expire.
func (n *Node) forgetEndpoints(ctx context.Context) error {
	encode := base64.StdEncoding.EncodeToString
	const first, last = "/registry/masterleases/", "/registry/masterleases0" // '0' follows '/'
	body := fmt.Sprintf(`{"key":%q,"range_end":%q}`, encode([]byte(first)), encode([]byte(last)))
	_, err := n.etcd.Do(ctx, http.MethodPost, "/v3/kv/deleterange", "application/json", []byte(body))
	return err
}

func (n *Node) importImages(wanted func(containerd.Archive) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		archives, err := containerd.FindArchives(n.BakedImages())
		if err != nil {
			return err
		}
		importer := containerd.Importer{Store: n.cri, Run: n.reaper.Output, Socket: n.ContainerdSocket()}
		for _, archive := range archives {
			if !wanted(archive) {
				continue
			}
			imported, err := importer.Ensure(ctx, archive)
			if err != nil {
				return err
			}
			if imported {
				n.say("image %s imported", archive.Tags[0])
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
