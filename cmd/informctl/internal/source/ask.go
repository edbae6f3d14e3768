package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// AskStatus queries the process that holds a file for the status of its informers.
func AskStatus(ctx context.Context, path string) ([]informer.Status, error) {
	return AskFor[[]informer.Status](ctx, path, "/v1/status")
}

// AskFor sends a query to the process that holds a file, and decodes the answer.
func AskFor[T any](ctx context.Context, path, question string) (answer T, err error) {
	process := NewProcess(ctx, path, false)
	defer func() { _ = process.Close() }()
	answer, err = Document[T](process, question, nil)
	if errors.Is(err, ErrNobody) {
		if _, statErr := os.Stat(path); statErr != nil {
			err = OpenError(path, statErr)
		}
	}
	return answer, err
}

// Consumers asks the process that holds the file, or reads the file if there is none.
// With damage, the error wraps store.ErrCorrupt, and the rest is returned.
func (db *Database) Consumers(ctx context.Context) (found []durable.Status, err error) {
	if db.File != nil {
		found, err = durable.Stored(ctx, db.File)
		return found, db.Named(err)
	}
	return AskFor[[]durable.Status](ctx, db.Path, "/v1/consumers")
}

// Await waits until the scopes of the wanted resources are not older than a resource
// version. It passes over resources that are not there.
func (db *Database) Await(wanted []resources.Wanted, rv string) error {
	process := db.Process()
	for _, want := range wanted {
		infos, err := db.Find(want.Resource)
		if errors.As(err, new(*resources.UnknownError)) {
			continue // what reads them says so
		}
		if err != nil {
			return err
		}
		for _, info := range infos {
			if process != nil {
				// No object has this key; the process answers when it is there.
				_, err = (&liveScope{Process: process, info: info}).parts("/v1/keys", url.Values{"key": {""}, "notOlderThan": {rv}})
			} else if is := info.Checkpoint.RV; is == "" || store.Higher(is, rv) != is {
				err = fmt.Errorf("nothing follows %s in %s, which is at resource version %s and not at %s",
					info.Scope, db.Path, cmp.Or(is, "none"), rv)
			}
			if err != nil {
				return err
			}
		}
	}
	if process != nil {
		return db.describe(process) // the scopes as they are now
	}
	return nil
}
