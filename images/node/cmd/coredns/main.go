// Command coredns is the cluster's DNS server with only the plugins that a one-node gateway uses.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	// Each import registers one plugin; dnsserver.Directives below sets their order.
	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// CoreDNS calls the plugins in this order. kubernetes must precede forward, which would send Service names upstream.
	dnsserver.Directives = []string{
		"reload", "bind", "health", "ready", "log", "errors", "acl", "cache", "loadbalance", "hosts", "kubernetes", "loop", "forward",
	}
	coremain.Run()
}
