// Package network selects the node's address and renders the CNI configuration. It does not write files.
package network

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
)

// NodeAddress returns the internal IP address of the node.
func NodeAddress() (netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	var candidates []Candidate
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return netip.Addr{}, err
		}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
				candidates = append(candidates, Candidate{i.Name, i.Flags&net.FlagUp != 0, prefix.Addr()})
			}
		}
	}
	return PickAddress(candidates)
}

// Candidate is one address of one interface.
type Candidate struct {
	Interface string
	Up        bool
	Addr      netip.Addr
}

// PickAddress returns the first usable IPv4 address of an interface that the container engine created. It skips the pod
// bridge, which may exist since an earlier start in the same network namespace.
func PickAddress(candidates []Candidate) (netip.Addr, error) {
	for _, c := range candidates {
		if c.Up && c.Interface != Bridge && c.Addr.Is4() && !c.Addr.IsLoopback() && !c.Addr.IsLinkLocalUnicast() {
			return c.Addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no network interface has an IPv4 address; attach the container to a network")
}

// Bridge is the bridge interface of the pods.
const Bridge = "cni0"

// CNIConfig returns the CNI configuration: one bridge, host-local IPAM with the whole pod CIDR, host ports through iptables.
func CNIConfig(podCIDR netip.Prefix, leases string) ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0",
		"name":       "holdfast",
		"plugins": []map[string]any{
			{
				"type": "bridge", "bridge": Bridge, "isGateway": true, "ipMasq": true, "hairpinMode": true,
				"ipam": map[string]any{
					"type": "host-local", "dataDir": leases,
					"ranges": [][]map[string]string{{{"subnet": podCIDR.String()}}},
					"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
}
