package source

import (
	"context"
	"errors"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
)

// Wiped is what a wipe drops.
type Wiped struct {
	Infos     []store.Info
	Consumers []durable.Status // go with the last scopes of the file
	Cluster   string           // that the flags name; "" if they name none
}

// Wipeable checks everything that can be wrong before a resource of a file is dropped,
// "" for all, without changing anything. It returns what would be dropped.
func Wipeable(ctx context.Context, e cmdutil.Env, file FileFlags, resource string) (w Wiped, err error) {
	db, err := OpenDatabase(file.Path, file.Keys, false)
	if err != nil {
		return Wiped{}, err
	}
	defer func() { _ = db.Close() }()
	db.WithGone = true
	if err := db.OfCluster(file.Cluster); err != nil {
		return Wiped{}, err
	}
	w.Infos, err = db.Find(resource)
	if err == nil && resource != "" {
		err = OneCluster(db.Path, w.Infos)
	}
	if err == nil {
		err = db.Writable(ctx, e)
	}
	if err != nil {
		return Wiped{}, err
	}
	w.Cluster = db.cluster
	if len(w.Infos) == len(db.Stored) {
		// What cannot be read of consumers is dropped, too.
		if w.Consumers, err = db.Consumers(ctx); errors.Is(err, store.ErrCorrupt) {
			err = nil
		}
	}
	return w, err
}
