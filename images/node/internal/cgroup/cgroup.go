// Package cgroup prepares the cgroup tree of the container for pods: version 1 and 2, in a private cgroup namespace.
// NewPlan is a pure function of the mount table; only Prepare and Delegate change the system.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is the path where all container engines mount the cgroup tree.
const Root = "/sys/fs/cgroup"

// Plan describes how to prepare the mounts.
type Plan struct {
	Version int
	// Remount lists the read-only mount points. Container engines mount cgroups read-only in unprivileged containers.
	Remount []string
}

// NewPlan derives the plan from a mount table in the format of /proc/self/mountinfo.
func NewPlan(mountinfo string) (Plan, error) {
	var plan Plan
	scanner := bufio.NewScanner(strings.NewReader(mountinfo))
	for scanner.Scan() {
		mountPoint, fsType, options, ok := parseMount(scanner.Text())
		if !ok || mountPoint != Root && !strings.HasPrefix(mountPoint, Root+"/") {
			continue
		}
		switch fsType {
		case "cgroup":
			plan.Version = 1
		case "cgroup2":
			// A hybrid host mounts version 2 below the root, without controllers; version 1 has the controllers.
			if mountPoint == Root {
				plan.Version = 2
			}
		default:
			continue
		}
		if hasOption(options, "ro") {
			plan.Remount = append(plan.Remount, mountPoint)
		}
	}
	if plan.Version == 0 {
		return plan, fmt.Errorf("%s: no cgroup mount", Root)
	}
	return plan, nil
}

// parseMount parses one line: id parent major:minor root MOUNT-POINT OPTIONS [tags...] - TYPE source superoptions.
func parseMount(line string) (mountPoint, fsType, options string, ok bool) {
	left, right, found := strings.Cut(line, " - ")
	fields, tail := strings.Fields(left), strings.Fields(right)
	if !found || len(fields) < 6 || len(tail) < 1 {
		return "", "", "", false
	}
	return fields[4], tail[0], fields[5], true
}

func hasOption(options, want string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if option == want {
			return true
		}
	}
	return false
}

// Prepare makes the plan for this process, applies it and returns it. It is idempotent.
func Prepare() (Plan, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Plan{}, err
	}
	plan, err := NewPlan(string(table))
	if err != nil {
		return plan, err
	}
	for _, mountPoint := range plan.Remount {
		// A bind remount changes the flags of this mount only. A plain remount would change the superblock of the host, and
		// the kernel rejects it as busy.
		flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := unix.Mount("", mountPoint, "", flags, ""); err != nil {
			return plan, fmt.Errorf("make %s writable: %w", mountPoint, err)
		}
	}
	removePodCgroups(Root)
	if plan.Version == 2 {
		return plan, Delegate(Root)
	}
	return plan, nil
}

// removePodCgroups removes the pod cgroups of an earlier start in the same container. The kubelet would search for the
// containers of each one, and report its node status seconds later. The kernel keeps the cgroups that are in use.
func removePodCgroups(root string) {
	for _, pattern := range []string{"kubepods", "*/kubepods"} {
		trees, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, tree := range trees {
			var dirs []string
			_ = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			// The kernel removes the files of a cgroup with its directory; children must be removed first.
			for _, dir := range slices.Backward(dirs) {
				_ = unix.Rmdir(dir)
			}
		}
	}
}

// Delegate moves all processes of a version 2 root cgroup into a leaf, then enables all controllers for the children. The kernel
// does not enable controllers for the children of a cgroup that contains processes.
func Delegate(root string) error {
	leaf := filepath.Join(root, "init.scope")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return err
	}
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var enable []string
	for _, name := range strings.Fields(string(controllers)) {
		enable = append(enable, "+"+name)
	}
	control := filepath.Join(root, "cgroup.subtree_control")
	// The container engine may start a health check in the root between the move and the write, which then fails with EBUSY.
	for range 20 {
		if err = moveProcesses(root, leaf); err != nil {
			return err
		}
		err = os.WriteFile(control, []byte(strings.Join(enable, " ")), 0o644)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return err
}

func moveProcesses(from, to string) error {
	pids, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(pids)) {
		err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0o644)
		if err != nil && !errors.Is(err, unix.ESRCH) { // The process may have exited meanwhile.
			return fmt.Errorf("move process %s to %s: %w", pid, to, err)
		}
	}
	return nil
}
