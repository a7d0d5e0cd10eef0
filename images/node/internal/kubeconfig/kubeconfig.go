// Package kubeconfig renders kubeconfig files. It issues no certificates.
package kubeconfig

import (
	"encoding/base64"
	"fmt"
	"os"

	"holdfast.dev/node/internal/atomicfile"
)

// User describes a kubeconfig with one user, cluster and context.
type User struct {
	Name     string // name of the user and of the context
	Server   string
	CAFile   string
	CertFile string // certificate and key in one file
	// Embed copies the credentials into the file, for clients outside the node. Otherwise the file contains paths, so that
	// components read renewed certificates.
	Embed bool
}

const kubeconfigFormat = `apiVersion: v1
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
	return fmt.Appendf(nil, kubeconfigFormat, u.Server, ca, u.Name, cert, key, u.Name, u.Name, u.Name), nil
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

// Write writes the file with mode 0600 if its content differs. It reports whether it wrote.
func (u User) Write(path string) (bool, error) {
	data, err := u.Render()
	if err != nil {
		return false, err
	}
	return atomicfile.WriteIfChanged(path, data, 0o600)
}
