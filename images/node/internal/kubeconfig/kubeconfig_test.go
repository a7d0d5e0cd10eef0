package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestRenderWithPathsAndWithEmbeddedCredentials(t *testing.T) {
	dir := t.TempDir()
	ca, pair := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "admin.pem")
	for _, path := range []string{ca, pair} {
		if err := os.WriteFile(path, []byte("PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	user := User{Name: "admin", Server: "https://127.0.0.1:6443", CAFile: ca, CertFile: pair}
	for _, embed := range []bool{false, true} {
		user.Embed = embed
		data, err := user.Render()
		if err != nil {
			t.Fatal(err)
		}
		var parsed map[string]any
		if err := yaml.UnmarshalStrict(data, &parsed); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, data)
		}
		if parsed["current-context"] != "admin" || strings.Contains(string(data), "-data:") != embed {
			t.Errorf("embed=%v:\n%s", embed, data)
		}
	}
}

func TestWriteReportsChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k.yaml")
	user := User{Name: "x", Server: "https://127.0.0.1:6443", CAFile: "/ca", CertFile: "/pair"}
	for i, want := range []bool{true, false} {
		if changed, err := user.Write(path); err != nil || changed != want {
			t.Errorf("write %d: %v %v", i, changed, err)
		}
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}
