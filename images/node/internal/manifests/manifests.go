// Package manifests holds the objects that every node has (access, DNS, storage) and turns them into requests.
// It is applied at each boot: an upgraded node brings its own versions along.
package manifests

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"path"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

//go:embed files/*.yaml
var files embed.FS

// Values fill the manifests' placeholders.
type Values struct {
	DNSServiceIP string
	DNSImage     string
	DNSDir       string
}

// Object is one object and the path that it is applied to.
type Object struct {
	Kind string
	Name string
	Path string
	Body []byte
}

// Render returns all objects in the order in which they are to be applied.
func Render(values Values) ([]Object, error) {
	entries, err := files.ReadDir("files")
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, entry := range entries {
		text, err := fill(path.Join("files", entry.Name()), values)
		if err != nil {
			return nil, err
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			object, err := parse([]byte(document))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", entry.Name(), err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func fill(name string, values Values) (string, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return "", err
	}
	shape, err := template.New(name).Option("missingkey=error").Parse(string(data))
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = shape.Execute(&out, values)
	return out.String(), err
}

// plurals is how kinds are spelled in paths: these few are all that is used here, discovery would cost a round trip.
var plurals = map[string]string{
	"ServiceAccount": "serviceaccounts", "Service": "services", "Deployment": "deployments", "ClusterRole": "clusterroles",
	"ClusterRoleBinding": "clusterrolebindings", "StorageClass": "storageclasses",
}

func parse(document []byte) (Object, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	body, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return Object{}, err
	}
	if err := yaml.Unmarshal(body, &head); err != nil {
		return Object{}, err
	}
	plural, known := plurals[head.Kind]
	if !known || head.Metadata.Name == "" {
		return Object{}, fmt.Errorf("object of kind %q, name %q", head.Kind, head.Metadata.Name)
	}
	where := "/apis/" + head.APIVersion
	if !strings.Contains(head.APIVersion, "/") {
		where = "/api/" + head.APIVersion
	}
	if head.Metadata.Namespace != "" {
		where = path.Join(where, "namespaces", head.Metadata.Namespace)
	}
	return Object{head.Kind, head.Metadata.Name, path.Join(where, plural, head.Metadata.Name), body}, nil
}

// Applier sends one object.
type Applier interface {
	Apply(ctx context.Context, path string, object []byte) error
}

// Apply sends all objects, in order; it may be called again after a failure.
func Apply(ctx context.Context, api Applier, objects []Object) error {
	for _, object := range objects {
		if err := api.Apply(ctx, object.Path, object.Body); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.Kind, object.Name, err)
		}
	}
	return nil
}

// Deleter deletes one object with its dependents; an object that does not exist is a success.
type Deleter interface {
	Delete(ctx context.Context, path string) error
}

// Retired returns the paths of objects that earlier nodes applied and this one does not have: the pod that provisioned
// volumes with helper pods.
func Retired() []string {
	const system, rbac = "/namespaces/kube-system/", "/apis/rbac.authorization.k8s.io/v1"
	return []string{
		"/apis/apps/v1" + system + "deployments/local-path-provisioner",
		"/api/v1" + system + "configmaps/local-path-config",
		"/api/v1" + system + "serviceaccounts/local-path-provisioner",
		rbac + system + "rolebindings/local-path-provisioner",
		rbac + system + "roles/local-path-provisioner",
		rbac + "/clusterrolebindings/holdfast:local-path-provisioner",
		rbac + "/clusterroles/holdfast:local-path-provisioner",
	}
}

// Delete deletes objects in order; it may be called again after a failure.
func Delete(ctx context.Context, api Deleter, paths []string) error {
	for _, each := range paths {
		if err := api.Delete(ctx, each); err != nil {
			return fmt.Errorf("delete %s: %w", each, err)
		}
	}
	return nil
}
