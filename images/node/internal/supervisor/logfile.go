package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// LogFile is a component's log: bounded on disk, with its last lines at hand for an error message.
type LogFile struct {
	path string
	max  int64

	mu   sync.Mutex
	file *os.File
	size int64
	tail []string
	part []byte
}

const tailLines = 40 // A Go panic prints its reason first and then a stack.

// OpenLogFile appends to path, and moves it to path.1 whenever it would grow over max bytes: two files at most.
func OpenLogFile(path string, max int64) (*LogFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &LogFile{path: path, max: max, file: file, size: info.Size()}, nil
}

// Write appends data. It fails only when the disk does, and remembers the lines even then.
func (l *LogFile) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(data)
	if l.size+int64(len(data)) > l.max {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(data)
	l.size += int64(n)
	return n, err
}

func (l *LogFile) rotate() error {
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	l.file.Close()
	l.file, l.size = file, 0
	return nil
}

func (l *LogFile) remember(data []byte) {
	l.part = append(l.part, data...)
	for {
		end := bytes.IndexByte(l.part, '\n')
		if end < 0 {
			break
		}
		l.tail = append(l.tail, string(l.part[:end]))
		l.part = l.part[end+1:]
	}
	if len(l.tail) > tailLines {
		l.tail = append([]string(nil), l.tail[len(l.tail)-tailLines:]...)
	}
	if len(l.part) > 8192 { // A line without end must not eat memory.
		l.part = append([]byte(nil), l.part[len(l.part)-4096:]...)
	}
}

// Tail returns the last lines, the newest last.
func (l *LogFile) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.tail, "\n")
}

// Pipe returns a file that a process may write to; what comes out is copied here until the last writer has closed it, and
// then the channel is closed.
func (l *LogFile) Pipe() (*os.File, <-chan struct{}, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		defer reader.Close()
		buffer := make([]byte, 16<<10)
		for {
			n, err := reader.Read(buffer)
			// A full disk must not block the component: its output is dropped, the pipe still drained.
			_, _ = l.Write(buffer[:n])
			if err != nil {
				if err != io.EOF {
					fmt.Fprintf(os.Stderr, "log %s: %v\n", l.path, err)
				}
				return
			}
		}
	}()
	return writer, drained, nil
}
