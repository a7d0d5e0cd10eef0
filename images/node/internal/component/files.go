package component

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"text/template"

	"holdfast.dev/node/internal/settings"
)

// KubeletConfig renders the kubelet's configuration file (JSON is YAML too).
func (n Node) KubeletConfig() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": n.authority("ca")},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"tlsCertFile":              n.pair("kubelet-server"),
		"tlsPrivateKeyFile":        n.pair("kubelet-server"),
		"containerRuntimeEndpoint": "unix://" + n.ContainerdSocket(),
		"cgroupDriver":             "cgroupfs",
		"failSwapOn":               false,
		"maxPods":                  n.MaxPods,
		"podLogsDir":               n.PodLogs(),
		"clusterDomain":            settings.ClusterDomain,
		"clusterDNS":               []string{n.DNSServiceIP().String()},
		"volumePluginDir":          filepath.Join(n.Layout.Kubelet(), "volume-plugins"),
		"healthzBindAddress":       "127.0.0.1",
		// Makes the kubelet go on where it may not write a kernel setting: a container has few of them to itself.
		"featureGates": map[string]any{"KubeletInUserNamespace": true},
		// A large image must not hold up the small ones behind it.
		"serializeImagePulls":       false,
		"maxParallelImagePulls":     4,
		"registryPullQPS":           0,
		"containerLogMaxSize":       "10Mi",
		"containerLogMaxFiles":      3,
		"enableDebuggingHandlers":   true,
		"enableProfilingHandler":    false,
		"nodeStatusUpdateFrequency": "10s",
	}, "", "  ")
}

var corefile = template.Must(template.New("Corefile").Parse(`.:53 {
    bind {{.Address}}
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    # The node's address is also seen by its neighbours on the engine's network: they are not served.
    acl {
        allow net {{.PodCIDR}} {{.Address}}/32
        block
    }
    cache 30
    loadbalance
    kubernetes {{.Domain}} in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    loop
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    reload
}
`))

// Corefile renders the DNS server's configuration. It is a file of the node, not a ConfigMap: it names the node's current
// address, and has to be right before the API answers.
func (n Node) Corefile() ([]byte, error) {
	var out strings.Builder
	err := corefile.Execute(&out, map[string]any{"Address": n.Address, "PodCIDR": n.PodCIDR, "Domain": settings.ClusterDomain})
	return []byte(out.String()), err
}
