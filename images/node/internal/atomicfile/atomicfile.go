// Package atomicfile replaces files atomically: after a crash, a file has its old or its new content.
package atomicfile

import (
	"bytes"
	"os"
	"path/filepath"
)

// Write replaces the file at path. It writes a temporary file, syncs it, renames it and syncs the directory.
func Write(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // After the rename, this name no longer exists.
	if err := writeAndSync(tmp, data, mode); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// WriteIfChanged writes only if the content differs, so that a process that watches the file does not reload it needlessly.
// It reports whether it wrote.
func WriteIfChanged(path string, data []byte, mode os.FileMode) (bool, error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return false, os.Chmod(path, mode)
	}
	return true, Write(path, data, mode)
}

func writeAndSync(file *os.File, data []byte, mode os.FileMode) error {
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	return file.Sync()
}

func syncDir(dir string) error {
	handle, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Sync()
}
