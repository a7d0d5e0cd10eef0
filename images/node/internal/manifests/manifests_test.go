package manifests

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

var values = Values{
	DNSServiceIP: "10.96.0.10", DNSImage: "dns:1", DNSDir: "/dns",
}

func TestRender(t *testing.T) {
	objects, err := Render(values)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{}
	for _, object := range objects {
		if strings.Contains(string(object.Body), "{{") {
			t.Errorf("%s %s contains a template action", object.Kind, object.Name)
		}
		paths[object.Path] = string(object.Body)
	}
	for path, want := range map[string]string{
		"/api/v1/namespaces/kube-system/services/kube-dns":                                    `"clusterIP":"10.96.0.10"`,
		"/apis/apps/v1/namespaces/kube-system/deployments/coredns":                            `"image":"dns:1"`,
		"/apis/storage.k8s.io/v1/storageclasses/local-path":                                   `is-default-class":"true"`,
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/holdfast:coredns":             `holdfast:coredns`,
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/holdfast:storage-provisioner": `"kind":"User"`,
	} {
		if !strings.Contains(paths[path], want) {
			t.Errorf("%s: %s is missing in %s", path, want, paths[path])
		}
	}
}

func TestParseRejectsInvalidManifests(t *testing.T) {
	for _, text := range []string{"kind: Gadget\nmetadata: {name: x}", "kind: Service", "a: [", "kind: Service\nkind: Service"} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}

type failingApplier struct{ calls int }

func (f *failingApplier) Apply(context.Context, string, []byte) error {
	f.calls++
	return errors.New("refused")
}

func TestApplyStopsAtFirstErrorAndNamesObject(t *testing.T) {
	objects, _ := Render(values)
	api := &failingApplier{}
	err := Apply(context.Background(), api, objects)
	if api.calls != 1 || err == nil || !strings.Contains(err.Error(), objects[0].Name) {
		t.Errorf("%d calls, %v", api.calls, err)
	}
}

func TestRetiredContainsNoAppliedObject(t *testing.T) {
	objects, _ := Render(values)
	for _, object := range objects {
		if slices.Contains(Retired(), object.Path) {
			t.Errorf("%s is applied and then deleted", object.Path)
		}
	}
}
