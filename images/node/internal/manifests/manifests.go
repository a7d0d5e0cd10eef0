// Package manifests contains the objects of every node (RBAC, DNS, storage) and applies them.
// The node applies them at each boot, so that an upgrade updates them.
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

// Values are the template values of the manifests.
type Values struct {
	DNSServiceIP string
	DNSImage     string
	DNSDir       string
}

// Object is one object, in JSON, and its API path.
type Object struct {
	Kind string
	Name string
	Path string
	Body []byte
}

// Render returns all objects, in the order in which Apply must apply them.
func Render(values Values) ([]Object, error) {
	entries, err := files.ReadDir("files")
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, entry := range entries {
		text, err := renderFile(path.Join("files", entry.Name()), values)
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

func renderFile(name string, values Values) (string, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return "", err
	}
	tmpl, err := template.New(name).Option("missingkey=error").Parse(string(data))
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = tmpl.Execute(&out, values)
	return out.String(), err
}

// resourceNames maps kinds to the resource names in API paths. Discovery would cost a request for a few known kinds.
var resourceNames = map[string]string{
	"ServiceAccount": "serviceaccounts", "Service": "services", "Deployment": "deployments", "ClusterRole": "clusterroles",
	"ClusterRoleBinding": "clusterrolebindings", "StorageClass": "storageclasses",
}

func parse(document []byte) (Object, error) {
	var header struct {
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
	if err := yaml.Unmarshal(body, &header); err != nil {
		return Object{}, err
	}
	resource, known := resourceNames[header.Kind]
	if !known || header.Metadata.Name == "" {
		return Object{}, fmt.Errorf("object %q: no name or unknown kind %q", header.Metadata.Name, header.Kind)
	}
	prefix := "/apis/" + header.APIVersion
	if !strings.Contains(header.APIVersion, "/") {
		prefix = "/api/" + header.APIVersion
	}
	if header.Metadata.Namespace != "" {
		prefix = path.Join(prefix, "namespaces", header.Metadata.Namespace)
	}
	return Object{header.Kind, header.Metadata.Name, path.Join(prefix, resource, header.Metadata.Name), body}, nil
}

// Applier applies one object.
type Applier interface {
	Apply(ctx context.Context, path string, object []byte) error
}

// Apply applies all objects in order. It is idempotent and stops at the first error.
func Apply(ctx context.Context, api Applier, objects []Object) error {
	for _, object := range objects {
		if err := api.Apply(ctx, object.Path, object.Body); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.Kind, object.Name, err)
		}
	}
	return nil
}

// Deleter deletes one object and its dependents, and returns nil if the object does not exist.
type Deleter interface {
	Delete(ctx context.Context, path string) error
}

// Retired returns the API paths of objects that only earlier versions of the node applied: the provisioner that created volumes
// with helper pods.
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

// Delete deletes objects in order. It is idempotent and stops at the first error.
func Delete(ctx context.Context, api Deleter, paths []string) error {
	for _, objectPath := range paths {
		if err := api.Delete(ctx, objectPath); err != nil {
			return fmt.Errorf("delete %s: %w", objectPath, err)
		}
	}
	return nil
}
