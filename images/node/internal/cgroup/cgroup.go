// Package cgroup makes the container's own cgroup tree usable for pods: version 1 and 2, in a private cgroup namespace.
// The decision is a pure function of the mount table; only Prepare touches the system.
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

// Root is where every engine mounts the cgroup tree.
const Root = "/sys/fs/cgroup"

// Plan is what has to be done to the mounts found.
type Plan struct {
	Version int
	// Remount lists mount points that are read-only: engines mount cgroups so unless the container is privileged.
	Remount []string
}

// Decide reads a mount table (the format of /proc/self/mountinfo).
func Decide(mountinfo string) (Plan, error) {
	var plan Plan
	scanner := bufio.NewScanner(strings.NewReader(mountinfo))
	for scanner.Scan() {
		point, kind, options, ok := parse(scanner.Text())
		if !ok || point != Root && !strings.HasPrefix(point, Root+"/") {
			continue
		}
		switch kind {
		case "cgroup":
			plan.Version = 1
		case "cgroup2":
			// A hybrid host shows version 2 below the root, without controllers: version 1 is in charge there.
			if point == Root {
				plan.Version = 2
			}
		default:
			continue
		}
		if hasOption(options, "ro") {
			plan.Remount = append(plan.Remount, point)
		}
	}
	if plan.Version == 0 {
		return plan, fmt.Errorf("no cgroup is mounted under %s", Root)
	}
	return plan, nil
}

// parse takes one line: id parent major:minor root POINT OPTIONS [tags...] - KIND source superoptions.
func parse(line string) (point, kind, options string, ok bool) {
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

// Prepare carries out the decision for this process and returns it. It may run again in the same container.
func Prepare() (Plan, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Plan{}, err
	}
	plan, err := Decide(string(table))
	if err != nil {
		return plan, err
	}
	for _, point := range plan.Remount {
		// A bind remount changes this mount's own flag; a plain one would change the host's superblock and is refused as busy.
		flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := unix.Mount("", point, "", flags, ""); err != nil {
			return plan, fmt.Errorf("make %s writable: %w", point, err)
		}
	}
	clearPods(Root)
	if plan.Version == 2 {
		return plan, Delegate(Root)
	}
	return plan, nil
}

// clearPods removes the pods' cgroups that an earlier life left behind: the kubelet would look for the containers of each, for
// seconds, before it reports anything. Those that are in use cannot be removed, and stay.
func clearPods(root string) {
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
			// A cgroup's files vanish with it: only the folders are removed, children first.
			for _, dir := range slices.Backward(dirs) {
				_ = unix.Rmdir(dir)
			}
		}
	}
}

// Delegate moves every process of a version 2 root into a leaf and hands all controllers down: a cgroup with processes of its
// own may not have controllers in its children.
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
	// A health check may be executed into the root between the move and the write: then it is busy, and both are done again.
	for range 20 {
		if err = moveAll(root, leaf); err != nil {
			return err
		}
		err = os.WriteFile(control, []byte(strings.Join(enable, " ")), 0o644)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return err
}

func moveAll(from, to string) error {
	pids, err := os.ReadFile(filepath.Join(from, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(pids)) {
		err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0o644)
		if err != nil && !errors.Is(err, unix.ESRCH) { // It may have ended meanwhile.
			return fmt.Errorf("move process %s to %s: %w", pid, to, err)
		}
	}
	return nil
}
