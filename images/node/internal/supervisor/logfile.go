package supervisor

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// LogFile is a log with a limited size on disk. It keeps its last lines in memory for error messages.
type LogFile struct {
	path    string
	maxSize int64

	mu      sync.Mutex
	file    *os.File
	size    int64
	tail    []string
	partial []byte
}

const tailLines = 40 // Enough for a Go panic, which prints its reason before the stack.

// OpenLogFile opens a log for appending. A write that would exceed maxSize first renames the file to path.1.
func OpenLogFile(path string, maxSize int64) (*LogFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &LogFile{path: path, maxSize: maxSize, file: file, size: info.Size()}, nil
}

// Write appends data. It keeps the last lines in memory even if the write fails.
func (l *LogFile) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordTail(data)
	if l.size+int64(len(data)) > l.maxSize {
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

func (l *LogFile) recordTail(data []byte) {
	l.partial = append(l.partial, data...)
	for {
		end := bytes.IndexByte(l.partial, '\n')
		if end < 0 {
			break
		}
		l.tail = append(l.tail, string(l.partial[:end]))
		l.partial = l.partial[end+1:]
	}
	if len(l.tail) > tailLines {
		l.tail = append([]string(nil), l.tail[len(l.tail)-tailLines:]...)
	}
	if len(l.partial) > 8192 { // Limits the memory for a line without a newline.
		l.partial = append([]byte(nil), l.partial[len(l.partial)-4096:]...)
	}
}

// Tail returns the last lines, oldest first.
func (l *LogFile) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.tail, "\n")
}

// Pipe returns the write end of a pipe whose data is appended to the log. The returned channel is closed when all writers have
// closed the pipe.
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
			// Ignore write errors: with a full disk, the pipe must still be drained, or the component would block.
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
