// Package tempfile creates temporary files that are removed however the process ends.
package tempfile

import (
	"errors"
	"os"
)

// Unnamed creates a file in dir and removes its name, so that the file is deleted when it
// is closed. If dir is empty, it uses the system's directory for temporary files. pattern
// is the pattern of os.CreateTemp.
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
