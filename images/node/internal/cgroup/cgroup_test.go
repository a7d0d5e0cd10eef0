package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	root = "1 0 0:1 / / rw,relatime - overlay overlay rw\n"
	v1   = root + `40 1 0:30 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
41 40 0:31 / /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime - cgroup cgroup rw,memory
42 40 0:32 / /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:9 - cgroup cgroup rw,cpu,cpuacct
`
	hybrid     = v1 + "43 40 0:33 / /sys/fs/cgroup/unified ro,nosuid - cgroup2 cgroup rw\n"
	v2         = root + "40 1 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"
	v2writable = root + "40 1 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:5 - cgroup2 cgroup rw,nsdelegate\n"
)

func TestNewPlan(t *testing.T) {
	cases := []struct {
		name, table string
		version     int
		remount     []string
	}{
		{"version 1", v1, 1, []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct"}},
		{"hybrid", hybrid, 1, []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"}},
		{"version 2", v2, 2, []string{"/sys/fs/cgroup"}},
		{"version 2, already writable", v2writable, 2, nil},
	}
	for _, c := range cases {
		plan, err := NewPlan(c.table)
		if err != nil || plan.Version != c.version || !slices.Equal(plan.Remount, c.remount) {
			t.Errorf("%s: %+v %v", c.name, plan, err)
		}
	}
	if _, err := NewPlan(root); err == nil {
		t.Error("accepted a mount table without a cgroup mount")
	}
}

func TestDelegate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpu memory pids\n")
	write("cgroup.procs", "1\n")
	for range 2 { // After a restart of the container, the leaf already exists.
		if err := Delegate(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	moved, _ := os.ReadFile(filepath.Join(dir, "init.scope", "cgroup.procs"))
	if string(got) != "+cpu +memory +pids" || string(moved) != "1" {
		t.Errorf("subtree_control %q, moved %q", got, moved)
	}
}

func TestRemovePodCgroupsKeepsOtherCgroups(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"memory/kubepods/burstable/pod1/c1", "memory/init", "kubepods/besteffort/pod2"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	removePodCgroups(dir)
	for path, want := range map[string]bool{"memory/kubepods": false, "kubepods": false, "memory/init": true} {
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", path, err == nil, want)
		}
	}
}
