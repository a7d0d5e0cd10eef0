// Package kubeconfig renders kubeconfig files. It issues no certificates.
package kubeconfig

import (
	"encoding/base64"
	"fmt"
	"os"

	"holdfast.dev/node/internal/atomicfile"
)

// User is one identity's way to the API.
type User struct {
	Name     string // of the user and of the context
	Server   string
	CAFile   string
	CertFile string // certificate and key in one file
	// Embed copies the credentials into the file, for a reader outside the node; otherwise they are named by path,
	// so that a component picks up a renewed certificate by itself.
	Embed bool
}

const shape = `apiVersion: v1
kind: Config
clusters:
- name: holdfast
  cluster:
    server: %s
    %s
users:
- name: %s
  user:
    %s
    %s
contexts:
- name: %s
  context:
    cluster: holdfast
    user: %s
current-context: %s
`

// Render returns the file's content.
func (u User) Render() ([]byte, error) {
	ca, err := u.field("certificate-authority", u.CAFile)
	if err != nil {
		return nil, err
	}
	cert, err := u.field("client-certificate", u.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := u.field("client-key", u.CertFile)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, shape, u.Server, ca, u.Name, cert, key, u.Name, u.Name, u.Name), nil
}

func (u User) field(key, path string) (string, error) {
	if !u.Embed {
		return key + ": " + path, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return key + "-data: " + base64.StdEncoding.EncodeToString(data), nil
}

// Write renders to path with mode 0600 and says whether the content changed.
func (u User) Write(path string) (bool, error) {
	data, err := u.Render()
	if err != nil {
		return false, err
	}
	return atomicfile.WriteIfChanged(path, data, 0o600)
}
