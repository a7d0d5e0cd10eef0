package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// neededWatches is how many inotify instances the parts of a node hold together, with a little room.
const neededWatches = 26

const watchLimit = "/proc/sys/fs/inotify/max_user_instances"

// NeedsPersonError is a reason not to start that no restart mends.
type NeedsPersonError struct{ Reason string }

func (e NeedsPersonError) Error() string { return e.Reason }

// checkWatches refuses a host that has too few inotify instances left: containerd would come up without its pod network
// and never say so. They are counted for all containers of the host together.
func checkWatches(take func() (int, error), needed int) error {
	var held []int
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for range needed {
		fd, err := take()
		if errors.Is(err, unix.EMFILE) {
			limit, _ := os.ReadFile(watchLimit)
			return NeedsPersonError{fmt.Sprintf(
				"the host has %d of the %d inotify instances that a node needs left (fs.inotify.max_user_instances is %s); "+
					"stop another gateway, or raise it on the host: sysctl -w fs.inotify.max_user_instances=1024",
				len(held), needed, strings.TrimSpace(string(limit)))}
		}
		if err != nil {
			return fmt.Errorf("watch files: %w", err)
		}
		held = append(held, fd)
	}
	return nil
}

func takeWatch() (int, error) { return unix.InotifyInit1(unix.IN_CLOEXEC) }
