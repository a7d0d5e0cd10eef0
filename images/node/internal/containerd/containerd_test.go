package containerd

import (
	"archive/tar"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func archive(t *testing.T, dir, name, manifest string) string {
	t.Helper()
	path := filepath.Join(dir, name+".tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	writer := tar.NewWriter(file)
	for member, text := range map[string]string{"./layer": "x", "manifest.json": manifest} {
		if text == "" {
			continue
		}
		if err := writer.WriteHeader(&tar.Header{Name: member, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindArchivesReturnsPauseImageFirst(t *testing.T) {
	dir := t.TempDir()
	archive(t, dir, "a", `[{"Config":"aaa.json","RepoTags":["x:1"]}]`)
	archive(t, dir, "z", `[{"Config":"blobs/sha256/bbb","RepoTags":["`+PauseImage+`"]}]`)
	found, err := FindArchives(dir)
	if err != nil || len(found) != 2 {
		t.Fatalf("%v %v", found, err)
	}
	if !found[0].IsPause() || found[0].ID != "sha256:bbb" || found[1].ID != "sha256:aaa" {
		t.Errorf("%+v", found)
	}
}

func TestInvalidArchiveErrorContainsPath(t *testing.T) {
	for _, manifest := range []string{"", "[]", "{", `[{"Config":"a.json"}]`} {
		dir := t.TempDir()
		path := archive(t, dir, "bad", manifest)
		if _, err := FindArchives(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("manifest %q: %v", manifest, err)
		}
	}
}

// store is an ImageStore with at most one image.
type store struct{ id string }

func (s *store) ImageID(context.Context, string) (string, error) { return s.id, nil }

func TestEnsureImportsOnlyMissingOrDifferentImages(t *testing.T) {
	image := Archive{Path: "/x.tar", Tags: []string{"x:1"}, ID: "sha256:new"}
	for before, want := range map[string]bool{"": true, "sha256:old": true, "sha256:new": false} {
		s := &store{before}
		importer := Importer{Store: s, Run: func(_ context.Context, args ...string) (string, error) {
			if args[len(args)-1] != "/x.tar" {
				t.Errorf("%v", args)
			}
			s.id = image.ID
			return "", nil
		}}
		if got, err := importer.Ensure(context.Background(), image); got != want || err != nil {
			t.Errorf("with %q: %v %v", before, got, err)
		}
	}
}

func TestEnsureReturnsImportError(t *testing.T) {
	importer := Importer{Store: &store{}, Run: func(context.Context, ...string) (string, error) { return "", errors.New("no space left") }}
	if _, err := importer.Ensure(context.Background(), Archive{Tags: []string{"x"}, ID: "sha256:new"}); err == nil {
		t.Error("no error")
	}
}

func TestConfig(t *testing.T) {
	data, err := Config{Root: "/root-dir", Socket: "/sock", CNIConfig: "/cni", Registries: "/reg", Snapshotter: "overlayfs"}.Render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`root = "/root-dir"`, `conf_dir = "/cni"`, `config_path = "/reg"`, `snapshotter = "overlayfs"`, PauseImage, "restrict_oom_score_adj = true"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("config.toml: %s is missing", want)
		}
	}
}

// The image builder reads the names from image.toml; the node has them as constants.
func TestImageNamesMatchImageToml(t *testing.T) {
	data, err := os.ReadFile("../../image.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{PauseImage, DNSImage} {
		if !strings.Contains(string(data), `name = "`+name+`"`) {
			t.Errorf("image.toml: embedded image %s is missing", name)
		}
	}
}
