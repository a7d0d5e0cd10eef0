package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// requiredInotifyInstances is the number of inotify instances that all components of a node use, plus a small reserve.
const requiredInotifyInstances = 26

const inotifyLimitFile = "/proc/sys/fs/inotify/max_user_instances"

// ManualActionError is an error that a restart of the node cannot resolve.
type ManualActionError struct{ Reason string }

func (e ManualActionError) Error() string { return e.Reason }

// checkInotifyInstances returns an error if the host has too few free inotify instances. containerd would start without its pod
// network and not report it. The limit applies to all containers of the host together.
func checkInotifyInstances(create func() (int, error), required int) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for range required {
		fd, err := create()
		if errors.Is(err, unix.EMFILE) {
			limit, _ := os.ReadFile(inotifyLimitFile)
			return ManualActionError{fmt.Sprintf(
				"inotify: the host has %d free instances, and a node needs %d (fs.inotify.max_user_instances is %s); "+
					"stop another gateway, or raise the limit on the host: sysctl -w fs.inotify.max_user_instances=1024",
				len(fds), required, strings.TrimSpace(string(limit)))}
		}
		if err != nil {
			return fmt.Errorf("inotify: %w", err)
		}
		fds = append(fds, fd)
	}
	return nil
}

func newInotifyInstance() (int, error) { return unix.InotifyInit1(unix.IN_CLOEXEC) }
