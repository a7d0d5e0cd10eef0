package containerd

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Archive is one docker-archive file and what it holds.
type Archive struct {
	Path string
	Tags []string
	ID   string // the config's digest: the same in Docker and in containerd
}

// FindArchives reads the folder of baked images; the pause image comes first, every pod needs it.
func FindArchives(dir string) ([]Archive, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		return nil, err
	}
	var archives []Archive
	for _, file := range paths {
		archive, err := ReadArchive(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		archives = append(archives, archive)
	}
	slices.SortStableFunc(archives, func(a, b Archive) int { return rank(a) - rank(b) })
	return archives, nil
}

func rank(a Archive) int {
	if a.IsPause() {
		return 0
	}
	return 1
}

// IsPause tells the image that holds a pod's namespaces from the others.
func (a Archive) IsPause() bool { return slices.Contains(a.Tags, PauseImage) }

// ReadArchive finds the manifest in a docker-archive.
func ReadArchive(file string) (Archive, error) {
	handle, err := os.Open(file)
	if err != nil {
		return Archive{}, err
	}
	defer handle.Close()
	reader := tar.NewReader(handle)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return Archive{}, errors.New("no manifest.json in it")
		}
		if err != nil {
			return Archive{}, err
		}
		if path.Clean(header.Name) == "manifest.json" {
			return parseManifest(file, reader)
		}
	}
}

func parseManifest(file string, reader io.Reader) (Archive, error) {
	var manifest []struct {
		Config   string
		RepoTags []string
	}
	if err := json.NewDecoder(reader).Decode(&manifest); err != nil {
		return Archive{}, err
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) == 0 {
		return Archive{}, errors.New("it must hold exactly one image, with a name")
	}
	// Older writers name the config <digest>.json, newer ones blobs/sha256/<digest>.
	digest := strings.TrimSuffix(path.Base(manifest[0].Config), ".json")
	return Archive{Path: file, Tags: manifest[0].RepoTags, ID: "sha256:" + digest}, nil
}

// Store is what an import needs of the runtime.
type Store interface {
	ImageID(ctx context.Context, name string) (string, error)
}

// Importer brings archives into containerd.
type Importer struct {
	Store  Store
	Run    func(ctx context.Context, args ...string) (string, error)
	Socket string
}

// Ensure imports the archive unless containerd has the very same image already, and says whether it did.
func (i Importer) Ensure(ctx context.Context, archive Archive) (bool, error) {
	if i.present(ctx, archive) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := i.Run(ctx, "/usr/bin/ctr", "--address", i.Socket, "--namespace", "k8s.io", "images", "import", archive.Path); err != nil {
		return false, err
	}
	// containerd tells its CRI half through an event: the image is there for the kubelet a moment later.
	for !i.present(ctx, archive) {
		select {
		case <-ctx.Done():
			return true, fmt.Errorf("%s was imported but the runtime does not show %s", archive.Path, archive.ID)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true, nil
}

func (i Importer) present(ctx context.Context, archive Archive) bool {
	for _, tag := range archive.Tags {
		if id, err := i.Store.ImageID(ctx, tag); err != nil || id != archive.ID {
			return false
		}
	}
	return true
}
