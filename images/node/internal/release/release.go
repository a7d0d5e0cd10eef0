// Package release says which versions this node is made of. It reads and writes nothing.
package release

import (
	"encoding/json"

	etcd "go.etcd.io/etcd/api/v3/version"
	"k8s.io/component-base/version"
)

// Contract counts incompatible changes of what the host side relies on: variables, paths, applets, exit codes.
const Contract = "1"

// JSON is the versions as the host side reads them, from the applet and from the volume.
func JSON() []byte {
	data, err := json.Marshal(map[string]string{
		"kubernetes": version.Get().GitVersion,
		"contract":   Contract,
		"etcd":       etcd.Version,
	})
	if err != nil {
		panic(err) // A map of strings always encodes.
	}
	return data
}
