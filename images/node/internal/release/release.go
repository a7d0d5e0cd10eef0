// Package release returns the versions of the node's components. It does not access files.
package release

import (
	"encoding/json"

	etcd "go.etcd.io/etcd/api/v3/version"
	"k8s.io/component-base/version"
)

// Contract is the version of the interface that the holdfast command uses: environment variables, paths, applets, exit codes.
// An incompatible change increments it.
const Contract = "1"

// JSON returns the versions in the format that the holdfast command reads, from the `version` applet and from the volume.
func JSON() []byte {
	data, err := json.Marshal(map[string]string{
		"kubernetes": version.Get().GitVersion,
		"contract":   Contract,
		"etcd":       etcd.Version,
	})
	if err != nil {
		panic(err) // Cannot happen: a map of strings always encodes.
	}
	return data
}
