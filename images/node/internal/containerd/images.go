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

// Archive describes a docker-archive file with one image.
type Archive struct {
	Path string
	Tags []string
	ID   string // digest of the image config, the same in Docker and in containerd
}

// FindArchives reads all archives in a directory. The pause image comes first, because all pods need it.
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

// IsPause reports whether the archive contains the pause image.
func (a Archive) IsPause() bool { return slices.Contains(a.Tags, PauseImage) }

// ReadArchive reads the manifest of a docker-archive file.
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
			return Archive{}, errors.New("manifest.json is missing")
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
		return Archive{}, errors.New("archive must contain exactly one image, with a tag")
	}
	// Old versions of Docker name the config <digest>.json, new ones blobs/sha256/<digest>.
	digest := strings.TrimSuffix(path.Base(manifest[0].Config), ".json")
	return Archive{Path: file, Tags: manifest[0].RepoTags, ID: "sha256:" + digest}, nil
}

// ImageStore looks up images in the container runtime.
type ImageStore interface {
	// ImageID returns the ID of the named image, or "" if the image does not exist.
	ImageID(ctx context.Context, name string) (string, error)
}

// Importer imports archives into containerd.
type Importer struct {
	Store  ImageStore
	Run    func(ctx context.Context, args ...string) (string, error)
	Socket string
}

// Ensure imports the archive if containerd does not have an image with the same tags and ID. It reports whether it imported.
func (i Importer) Ensure(ctx context.Context, archive Archive) (bool, error) {
	if i.hasImage(ctx, archive) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := i.Run(ctx, "/usr/bin/ctr", "--address", i.Socket, "--namespace", "k8s.io", "images", "import", archive.Path); err != nil {
		return false, err
	}
	// The CRI plugin learns of the import through an asynchronous event; only then the kubelet can use the image.
	for !i.hasImage(ctx, archive) {
		select {
		case <-ctx.Done():
			return true, fmt.Errorf("%s: imported, but the CRI plugin does not list image %s", archive.Path, archive.ID)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true, nil
}

func (i Importer) hasImage(ctx context.Context, archive Archive) bool {
	for _, tag := range archive.Tags {
		if id, err := i.Store.ImageID(ctx, tag); err != nil || id != archive.ID {
			return false
		}
	}
	return true
}
