package network

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

func TestPickAddress(t *testing.T) {
	addr := netip.MustParseAddr
	got, err := PickAddress([]Candidate{
		{"lo", true, addr("127.0.0.1")},
		{"cni0", true, addr("10.244.0.1")},
		{"eth1", false, addr("172.30.0.2")},
		{"eth0", true, addr("fe80::1")},
		{"eth0", true, addr("172.20.0.3")},
	})
	if err != nil || got != addr("172.20.0.3") {
		t.Errorf("%v %v", got, err)
	}
	if _, err := PickAddress([]Candidate{{"lo", true, addr("127.0.0.1")}}); err == nil {
		t.Error("accepted a loopback address")
	}
}

func TestCNIConfigIsValid(t *testing.T) {
	data, err := CNIConfig(netip.MustParsePrefix("10.1.0.0/16"), "/run/leases")
	if err != nil || !json.Valid(data) {
		t.Fatalf("%v %s", err, data)
	}
	for _, want := range []string{`"10.1.0.0/16"`, `"/run/leases"`, `"portmap"`, `"bridge"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is missing in %s", want, data)
		}
	}
}
