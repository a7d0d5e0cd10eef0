// Package atomicfile replaces files so that a crash leaves the old content or the new, never a part of either.
package atomicfile

import (
	"bytes"
	"os"
	"path/filepath"
)

// Write puts data at path with the given mode: temporary file, fsync, rename, fsync of the folder.
func Write(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // After the rename there is nothing left of that name.
	if err := fill(tmp, data, mode); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// WriteIfChanged writes only when the content differs, and says whether it did: a reader that reloads on change is left alone.
func WriteIfChanged(path string, data []byte, mode os.FileMode) (bool, error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return false, os.Chmod(path, mode)
	}
	return true, Write(path, data, mode)
}

func fill(file *os.File, data []byte, mode os.FileMode) error {
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
