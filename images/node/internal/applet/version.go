package applet

import (
	"encoding/json"
	"fmt"

	etcd "go.etcd.io/etcd/api/v3/version"
	"k8s.io/component-base/version"
)

// ContractVersion counts incompatible changes of what the host side relies on: variables, paths, applets, exit codes.
const ContractVersion = "1"

func runVersion([]string) int {
	data, err := json.Marshal(map[string]string{
		"kubernetes": version.Get().GitVersion,
		"contract":   ContractVersion,
		"etcd":       etcd.Version,
	})
	if err != nil {
		panic(err) // A map of strings always encodes.
	}
	fmt.Println(string(data))
	return ExitDone
}
