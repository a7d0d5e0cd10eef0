package settings

import (
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(key string) string { return values[key] }
}

func TestDefaults(t *testing.T) {
	s, err := FromEnv(env("HOLDFAST_NODE_NAME", "holdfast-a"))
	if err != nil {
		t.Fatal(err)
	}
	if s.PodCIDR.String() != DefaultPodCIDR || s.MaxPods != 250 {
		t.Errorf("defaults not applied: %+v", s)
	}
	if s.APIServiceIP().String() != "10.96.0.1" || s.DNSServiceIP().String() != "10.96.0.10" {
		t.Errorf("service addresses: %s %s", s.APIServiceIP(), s.DNSServiceIP())
	}
}

func TestSANsAreSplitAndTrimmed(t *testing.T) {
	s, err := FromEnv(env("HOLDFAST_NODE_NAME", "n", "HOLDFAST_API_SANS", " a.example, 192.0.2.7 ,,::1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.APISANs, "|"); got != "a.example|192.0.2.7|::1" {
		t.Errorf("got %s", got)
	}
}

func TestErrorContainsNameOfInvalidVariable(t *testing.T) {
	cases := map[string][]string{
		"HOLDFAST_NODE_NAME":    {"", "Upper", "-x", "a.b", strings.Repeat("a", 64)},
		"HOLDFAST_API_SANS":     {"a b", "http://x", "a,,b_c"},
		"HOLDFAST_POD_CIDR":     {"10.0.0.0", "10.0.0.1/16", "fd00::/64", "10.0.0.0/30", "10.96.0.0/12"},
		"HOLDFAST_SERVICE_CIDR": {"x", "10.96.0.0/29"},
		"HOLDFAST_MAX_PODS":     {"0", "-1", "many", "99999"},
	}
	for key, values := range cases {
		for _, value := range values {
			_, err := FromEnv(env("HOLDFAST_NODE_NAME", "n", key, value))
			if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s=%q: got %v", key, value, err)
			}
		}
	}
}
