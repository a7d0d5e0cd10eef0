// Package network finds the node's address and renders the pod network. It writes no files: callers do.
package network

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
)

// NodeAddress picks the address under which the node is known to its pods and to the API server.
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
	return Pick(candidates)
}

// Candidate is one address of one interface.
type Candidate struct {
	Interface string
	Up        bool
	Addr      netip.Addr
}

// Pick takes the first usable IPv4 address of an interface that the engine made; bridges and pods' interfaces made by an
// earlier supervisor in the same network namespace are passed over.
func Pick(candidates []Candidate) (netip.Addr, error) {
	for _, c := range candidates {
		if c.Up && c.Interface != Bridge && c.Addr.Is4() && !c.Addr.IsLoopback() && !c.Addr.IsLinkLocalUnicast() {
			return c.Addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no network interface has an IPv4 address: is the container attached to a network?")
}

// Bridge is the interface that pods hang on.
const Bridge = "cni0"

// CNIConfig renders the pod network: one bridge, addresses handed out from the whole pod range, host ports by iptables.
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
