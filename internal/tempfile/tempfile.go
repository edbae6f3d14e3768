// Package tempfile makes temporary files that leave nothing behind, however the process
// ends.
package tempfile

import (
	"errors"
	"os"
)

// Unnamed creates a file in dir and removes its name, so that the file is gone when it
// is closed. An empty dir is the system's directory for temporary files; pattern is that
// of os.CreateTemp.
func Unnamed(dir, pattern string) (*os.File, error) {
	file, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
