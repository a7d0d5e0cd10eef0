// Package settings reads and validates the node's environment variables.
package settings

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Defaults of the optional variables.
const (
	DefaultPodCIDR     = "10.244.0.0/16"
	DefaultServiceCIDR = "10.96.0.0/16"
	DefaultMaxPods     = 250
	ClusterDomain      = "cluster.local"
)

// Settings contains the validated values.
type Settings struct {
	NodeName    string
	APISANs     []string
	PodCIDR     netip.Prefix
	ServiceCIDR netip.Prefix
	MaxPods     int
}

var (
	// A DNS label has at most 63 characters, a Linux host name at most 64.
	nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsName  = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)
)

// FromEnv reads and validates all variables. An error contains the name of the invalid variable.
func FromEnv(getenv func(string) string) (Settings, error) {
	s := Settings{NodeName: getenv("HOLDFAST_NODE_NAME"), MaxPods: DefaultMaxPods}
	if s.NodeName == "" {
		return s, fmt.Errorf("HOLDFAST_NODE_NAME: not set")
	}
	if !nodeName.MatchString(s.NodeName) {
		return s, fmt.Errorf("HOLDFAST_NODE_NAME=%q: not a lower-case DNS label of at most 63 characters", s.NodeName)
	}
	var err error
	if s.APISANs, err = parseSANs(getenv("HOLDFAST_API_SANS")); err != nil {
		return s, err
	}
	if s.PodCIDR, err = parseCIDR("HOLDFAST_POD_CIDR", getenv("HOLDFAST_POD_CIDR"), DefaultPodCIDR); err != nil {
		return s, err
	}
	if s.ServiceCIDR, err = parseCIDR("HOLDFAST_SERVICE_CIDR", getenv("HOLDFAST_SERVICE_CIDR"), DefaultServiceCIDR); err != nil {
		return s, err
	}
	if s.PodCIDR.Overlaps(s.ServiceCIDR) {
		return s, fmt.Errorf("HOLDFAST_POD_CIDR=%s: overlaps with HOLDFAST_SERVICE_CIDR=%s", s.PodCIDR, s.ServiceCIDR)
	}
	if v := getenv("HOLDFAST_MAX_PODS"); v != "" {
		if s.MaxPods, err = strconv.Atoi(v); err != nil || s.MaxPods < 1 || s.MaxPods > 5000 {
			return s, fmt.Errorf("HOLDFAST_MAX_PODS=%q: not a number from 1 to 5000", v)
		}
	}
	return s, nil
}

func parseSANs(value string) ([]string, error) {
	var sans []string
	for _, san := range strings.Split(value, ",") {
		san = strings.TrimSpace(san)
		if san == "" {
			continue
		}
		if _, err := netip.ParseAddr(san); err != nil && !dnsName.MatchString(san) {
			return nil, fmt.Errorf("HOLDFAST_API_SANS: %q is neither an IP address nor a DNS name", san)
		}
		sans = append(sans, san)
	}
	return sans, nil
}

func parseCIDR(key, value, fallback string) (netip.Prefix, error) {
	if value == "" {
		value = fallback
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil || !prefix.Addr().Is4() {
		return prefix, fmt.Errorf("%s=%q: not an IPv4 CIDR", key, value)
	}
	if prefix.Masked() != prefix {
		return prefix, fmt.Errorf("%s=%q: has bits outside its mask; use %s", key, value, prefix.Masked())
	}
	// The DNS Service uses the tenth address; a /28 has a few more addresses for other Services.
	if prefix.Bits() < 8 || prefix.Bits() > 28 {
		return prefix, fmt.Errorf("%s=%q: the mask must be from /8 to /28", key, value)
	}
	return prefix, nil
}

// APIServiceIP is the first Service address, which the API server assigns to its own Service.
func (s Settings) APIServiceIP() netip.Addr { return nthAddr(s.ServiceCIDR, 1) }

// DNSServiceIP is the tenth Service address, by convention that of the cluster DNS.
func (s Settings) DNSServiceIP() netip.Addr { return nthAddr(s.ServiceCIDR, 10) }

func nthAddr(prefix netip.Prefix, n int) netip.Addr {
	addr := prefix.Addr()
	for range n {
		addr = addr.Next()
	}
	return addr
}
