package component

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"text/template"

	"holdfast.dev/node/internal/settings"
)

// KubeletConfig returns the kubelet's configuration file, in JSON, which is a subset of YAML.
func (n Node) KubeletConfig() ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": n.caFile("ca")},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"tlsCertFile":              n.pemFile("kubelet-server"),
		"tlsPrivateKeyFile":        n.pemFile("kubelet-server"),
		"containerRuntimeEndpoint": "unix://" + n.ContainerdSocket(),
		"cgroupDriver":             "cgroupfs",
		"failSwapOn":               false,
		"maxPods":                  n.MaxPods,
		"podLogsDir":               n.PodLogs(),
		"clusterDomain":            settings.ClusterDomain,
		"clusterDNS":               []string{n.DNSServiceIP().String()},
		"volumePluginDir":          filepath.Join(n.Layout.Kubelet(), "volume-plugins"),
		"healthzBindAddress":       "127.0.0.1",
		// With this gate, the kubelet ignores errors when it writes sysctls. Most sysctls are read-only in a container.
		"featureGates": map[string]any{"KubeletInUserNamespace": true},
		// Serial pulls would delay small images behind a large one.
		"serializeImagePulls":       false,
		"maxParallelImagePulls":     4,
		"registryPullQPS":           0,
		"containerLogMaxSize":       "10Mi",
		"containerLogMaxFiles":      3,
		"enableDebuggingHandlers":   true,
		"enableProfilingHandler":    false,
		"nodeStatusUpdateFrequency": "10s",
		// On cgroup v2, the kernel otherwise kills all processes of a container when one exceeds its memory limit.
		"singleProcessOOMKill": true,
	}, "", "  ")
}

var corefile = template.Must(template.New("Corefile").Parse(`.:53 {
    bind {{.Address}}
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    # Other containers on the engine's network can reach the node's address; reject their queries.
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

// Corefile returns the configuration of CoreDNS. It is a file on the node and not a ConfigMap: it contains the current address
// of the node, and must be correct before the API server answers.
func (n Node) Corefile() ([]byte, error) {
	var out strings.Builder
	err := corefile.Execute(&out, map[string]any{"Address": n.Address, "PodCIDR": n.PodCIDR, "Domain": settings.ClusterDomain})
	return []byte(out.String()), err
}
